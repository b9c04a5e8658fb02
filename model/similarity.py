"""Sentence similarity: rank correlation of the cosine of two vectors with what people said.

Beside it stands what counting words reaches, without any model: the cosine of the word counts, and
of TF-IDF, each count times ln(sentences / sentences with the word), over all sentences of the file.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.guesser import Guesser, batches_by_length
from model.records import lines_of

# (sentence, sentence, score): of files with a header, SICK's and GLUE's; else STS-B's columns.
HEADERS = (
    ("sentence_A", "sentence_B", "relatedness_score"),
    ("sentence1", "sentence2", "score"),
)
COLUMNS = (5, 6, 4)


@dataclass(frozen=True)
class Pair:
    """Two sentences, and how like they are by those who were asked."""

    first: str
    second: str
    score: float


@dataclass(frozen=True)
class Similarity:
    """Spearman's rank correlation, times 100, over the pairs of a file.

    Attributes:
        spearman: Of the cosine of the vectors.
        by_dimensions: The same of their leading features only.
        word_counts, tfidf: What words alone reach.
        n_cut: Sentences too long for the model, of which it read the beginning.
    """

    file: str
    n_pairs: int
    pooling: str
    spearman: float
    by_dimensions: Mapping[int, float]
    word_counts: float
    tfidf: float
    n_cut: int

    def __str__(self) -> str:
        cut = f"; {self.n_cut} sentences cut" if self.n_cut else ""
        leading = "".join(f"  {n} dimensions {x:.1f}" for n, x in self.by_dimensions.items())
        return (
            f"{self.file}: Spearman (times 100) {self.spearman:.1f}{leading}  (word counts "
            f"{self.word_counts:.1f}, TF-IDF {self.tfidf:.1f}; {self.n_pairs:,} pairs{cut})"
        )


def pairs_of(path: Path) -> list[Pair]:
    """The pairs of a tab-separated file; nothing is quoted.

    Without a header the score stands in column 5 and the sentences in 6 and 7, as in STS-B; a
    header names them as SICK's or GLUE's does.

    Raises:
        ValueError: A line has too few columns, an empty sentence or no number; or there are fewer
            than two pairs.
    """
    pairs: list[Pair] = []
    columns = COLUMNS
    for where, line in lines_of(path):
        fields = line.split("\t")
        header = next((names for names in HEADERS if set(names) <= set(fields)), None)
        if header and not pairs:
            columns = (fields.index(header[0]), fields.index(header[1]), fields.index(header[2]))
        else:
            pairs.append(_pair(fields, columns, where))
    if len(pairs) < 2:
        raise ValueError(f"{path} has {len(pairs)} pairs; at least 2 are wanted")
    return pairs


def _pair(fields: Sequence[str], columns: tuple[int, int, int], where: str) -> Pair:
    if len(fields) <= max(columns):
        raise ValueError(
            f"{where} has {len(fields)} columns between tabs; {max(columns) + 1} are wanted, the "
            f"score in column {columns[2] + 1}, sentences in {columns[0] + 1} and {columns[1] + 1}"
        )
    first, second, said = (fields[column].strip() for column in columns)
    try:
        score = float(said)
    except ValueError:
        score = float("nan")
    if not isfinite(score):
        raise ValueError(f"{where}: the score, column {columns[2] + 1}, is {said!r}, no number")
    if not (first and second):
        raise ValueError(f"{where} has an empty sentence")
    return Pair(first, second, score)


def similarity(
    subject: Guesser,
    name: str,
    pairs: Sequence[Pair],
    *,
    pooling: str = "mean",
    dimensions: Sequence[int] = (),
) -> Similarity:
    """Score a subject's vectors, and words, on the pairs of a file of that name.

    Args:
        dimensions: Numbers of leading features to score as well.

    Raises:
        ValueError: There is no such pooling or dimension.
    """
    sentences = [sentence for pair in pairs for sentence in (pair.first, pair.second)]
    ids = subject.tokenizer.encode_ids(sentences)
    found = vectors(subject, [row[: subject.room] for row in ids], pooling=pooling)
    for n in dimensions:
        if not 0 < n <= found.shape[1]:
            raise ValueError(f"dimensions={n}; from 1 to {found.shape[1]}, what the vectors have")
    scores = np.array([pair.score for pair in pairs])

    def of_vectors(kept: NDArray[np.float64]) -> float:
        return 100 * spearman(_cosines(kept[::2], kept[1::2]), scores)

    counts = [Counter(re.findall(r"\w+", sentence.lower())) for sentence in sentences]
    seen = Counter(word for words in counts for word in words)
    idf = {word: log(len(sentences) / n) for word, n in seen.items()}
    return Similarity(
        file=name,
        n_pairs=len(pairs),
        pooling=pooling,
        spearman=of_vectors(found),
        by_dimensions={n: of_vectors(found[:, :n]) for n in dimensions},
        word_counts=100 * spearman(_word_cosines(counts, dict.fromkeys(seen, 1.0)), scores),
        tfidf=100 * spearman(_word_cosines(counts, idf), scores),
        n_cut=sum(len(row) > subject.room for row in ids),
    )


def vectors(
    subject: Guesser, rows: Sequence[Sequence[int]], *, pooling: str
) -> NDArray[np.float64]:
    """The pooled vector of each row of ids without prefix and suffix, [R,D].

    Raises:
        ValueError: There is no such pooling, or a number is not finite.
    """
    if pooling not in subject.poolings:
        raise ValueError(f"pooling={pooling!r}; one of: {', '.join(subject.poolings)}")
    wrapped, parts = [subject.tokenizer.wrap(row) for row in rows], []
    lengths = [len(row) for row in wrapped]
    batches = list(batches_by_length(lengths, most_rows=len(rows)))
    for batch in batches:
        ids = np.array([wrapped[i] for i in batch], np.int64)
        parts.append(subject.pool(ids, pooling).astype(np.float64))
    found = np.concatenate(parts)[np.argsort(np.concatenate(batches))]
    if not np.isfinite(found).all():
        raise ValueError("a vector is not finite: the weights are damaged, or training diverged")
    return found


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Rank correlation, tied values sharing the mean of their ranks; 0 where all are tied."""
    a, b = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    scale = sqrt((a @ a) * (b @ b))
    return float(a @ b) / scale if scale else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, n_equal = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(n_equal) - (n_equal - 1) / 2)[place]


def _cosines(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1.0)


def _word_cosines(
    counts: Sequence[Counter[str]], weight: Mapping[str, float]
) -> NDArray[np.float64]:
    """The cosine of each pair of bags of words."""
    weighted = [{word: n * weight[word] for word, n in words.items()} for words in counts]
    lengths = [sqrt(sum(x * x for x in words.values())) for words in weighted]
    products = [
        sum(x * second.get(word, 0.0) for word, x in first.items())
        for first, second in zip(weighted[::2], weighted[1::2], strict=True)
    ]
    scale = np.array(lengths[::2]) * np.array(lengths[1::2])
    return np.array(products) / np.where(scale > 0, scale, 1.0)
