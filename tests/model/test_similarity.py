"""Sentence similarity: correlations known by hand, and the files that hold pairs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model.guesser import Guesser
from model.similarity import pairs_of, similarity, spearman, vectors
from tests.model.knowing import knowing, lines, tokenizer_of

STSB = lines(
    ["main", "news", "2012", "1", "5.000", "a red fox", "a red fox", "extra", "columns"],
    ["main", "news", "2012", "2", "3.000", 'a "red fox', "a red dog"],
    ["main", "news", "2012", "3", "1.000", "a red fox", "the blue dog"],
    ["main", "news", "2012", "4", "2.000", "a red fox", "a blue dog"],
)


@pytest.fixture
def subject() -> Guesser:
    return knowing(tokenizer_of("a the red blue fox dog"), [])


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "pairs.csv").write_text(text, encoding="utf-8")
        return tmp_path / "pairs.csv"

    return write


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),  # 1 - 6 * 2 / (4 * 15)
        # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
        ([1, 2, 2, 9], [1, 2, 3, 4], 4.5 / (4.5 * 5) ** 0.5),
        ([7, 7, 7], [1, 2, 3], 0.0),
    ],
)
def test_the_rank_correlation_shares_the_ranks_of_ties(
    a: list[float], b: list[float], expected: float
) -> None:
    assert spearman(np.array(a) * 1.0, np.array(b) * 1.0) == pytest.approx(expected)


def test_vectors_and_words_are_scored_against_what_people_said(
    subject: Guesser, file: Callable[[str], Path]
) -> None:
    found = similarity(subject, "f", pairs_of(file(STSB)))
    assert (found.file, found.n_pairs, found.n_cut) == ("f", 4, 0)
    # Three, two, no and one of three words in common, as people said.
    assert found.word_counts == pytest.approx(100)
    assert found.spearman == pytest.approx(100)


def test_rare_words_weigh_more_in_tfidf(subject: Guesser, file: Callable[[str], Path]) -> None:
    # All have "a", which weighs nothing.
    text = lines(
        ["-", "-", "-", "-", 1, "a dog a", "a fox a"],
        ["-", "-", "-", "-", 2, "a red dog", "a dog dog"],
        ["-", "-", "-", "-", 3, "a red", "a red dog"],
    )
    found = similarity(subject, "f", pairs_of(file(text)))
    assert found.tfidf == pytest.approx(100)
    assert found.word_counts == pytest.approx(50)  # of 0.8, 0.775 and 0.816


def test_leading_features_are_scored_by_themselves(
    subject: Guesser, file: Callable[[str], Path]
) -> None:
    n = subject.tokenizer.vocab_size
    found = similarity(subject, "f", pairs_of(file(STSB)), dimensions=[n, 1])
    assert found.by_dimensions == {n: found.spearman, 1: 0.0}  # no text has the first token
    with pytest.raises(ValueError, match=f"dimensions={n + 1}; from 1 to {n}"):
        similarity(subject, "f", pairs_of(file(STSB)), dimensions=[n + 1])


def test_a_pooling_that_is_not_there_is_refused_with_those_that_are(
    subject: Guesser, file: Callable[[str], Path]
) -> None:
    with pytest.raises(ValueError, match="pooling='max'; one of: mean"):
        similarity(subject, "f", pairs_of(file(STSB)), pooling="max")


def test_vectors_come_in_the_order_of_their_rows(subject: Guesser) -> None:
    rows = [[7, 8, 9], [7], [], [8, 9], [9], [7, 7, 8]]
    found = vectors(subject, rows, pooling="mean")
    for row, vector in zip(rows, found, strict=True):
        wrapped = subject.tokenizer.wrap(row)
        assert vector.tolist() == np.bincount(wrapped, minlength=len(vector)).tolist()


def test_a_sentence_too_long_is_cut_and_counted(file: Callable[[str], Path]) -> None:
    subject = knowing(tokenizer_of("a the red blue fox dog"), [], max_tokens=5)
    text = STSB.replace('"', "").replace("a red dog", "a red dog dog")
    assert similarity(subject, "f", pairs_of(file(text))).n_cut == 1


@pytest.mark.parametrize(
    "text",
    [
        lines(
            ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"],
            [4, "one", "two", 3.6, "NEUTRAL"],
            [5, "three", "four", 1, "NEUTRAL"],
        ),
        lines(
            ["index", "sentence1", "sentence2", "score"],
            [0, "one", "two", 3.6],
            [1, "three", "four", 1],
        ).replace("\n", "\r\n"),
        lines(["", "", "", "", 3.6, "one", "two"], "", ["", "", "", "", 1, "three", "four"]),
    ],
)
def test_pairs_are_read_as_sick_glue_and_stsb_write_them(
    file: Callable[[str], Path], text: str
) -> None:
    found = [(pair.first, pair.second, pair.score) for pair in pairs_of(file(text))]
    assert found == [("one", "two", 3.6), ("three", "four", 1.0)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (lines(["a", "b", 1.0]), "line 1 has 3 columns between tabs; 7 are wanted, the score in"),
        (STSB.replace("3.000", "high"), "line 2: the score, column 5, is 'high', no number"),
        (STSB.replace("3.000", "nan"), "line 2: the score, column 5, is 'nan', no number"),
        (STSB.replace("the blue dog", " "), "line 3 has an empty sentence"),
        (STSB.splitlines()[0], "has 1 pairs; at least 2 are wanted"),
        ("", "no text in"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused_with_the_line(
    file: Callable[[str], Path], text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        pairs_of(file(text))
