"""Minimal pairs of sentences, one right and one wrong: which does the encoder think likelier?

A sentence's pseudo-log-likelihood is the sum over its tokens of the log-probability of each with
only itself masked. Source: Salazar et al. 2020, arXiv:1910.14659, section 2; the pairs are those of
Warstadt et al. 2020, arXiv:1912.00582 (BLiMP).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.guesser import Guesser
from model.questions import Question, ask, masked
from model.records import objects_of

# BLiMP's own names, and shorter ones.
NAMES = {
    "set": ("UID", "uid"),
    "field": ("field",),
    "good": ("sentence_good", "good"),
    "bad": ("sentence_bad", "bad"),
}


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in what makes one of them wrong."""

    set: str
    field: str
    good: str
    bad: str


@dataclass(frozen=True)
class Preference:
    """Shares of pairs whose right sentence is the likelier; a tie counts half.

    Attributes:
        fields: By what is tested (syntax, morphology, …).
        sets: By set of pairs.
    """

    accuracy: float
    n_pairs: int
    fields: Mapping[str, float]
    sets: Mapping[str, float]

    def __str__(self) -> str:
        lines = [f"minimal pairs: {self.accuracy:.3f}  ({self.n_pairs:,}, {len(self.sets)} sets)"]
        lines += [f"  {name:20} {share:.3f}" for name, share in self.fields.items()]
        return "\n".join(lines)


def minimal_pairs_of(
    paths: Sequence[Path], *, per_set: int | None = None
) -> dict[str, list[MinimalPair]]:
    """The first pairs of each set in JSON-lines files with BLiMP's fields.

    Raises:
        ValueError: A line is no object with `UID`, `field`, `sentence_good` and `sentence_bad` (or
            `uid`, `good`, `bad`), or `per_set` is none.
    """
    if per_set is not None and per_set < 1:
        raise ValueError(f"{per_set} pairs of each set; at least 1")
    sets: dict[str, list[MinimalPair]] = {}
    for path in paths:
        for found in objects_of(path, NAMES):
            pair = MinimalPair(**found)
            pairs = sets.setdefault(pair.set, [])
            if per_set is None or len(pairs) < per_set:
                pairs.append(pair)
    return sets


def preference(
    subject: Guesser,
    sets: Mapping[str, Sequence[MinimalPair]],
    *,
    tell: Callable[[int], None] = lambda done: None,
) -> Preference:
    """Score a subject on sets of pairs.

    Args:
        tell: Is told how many more sets are done.
    """
    by_set: dict[str, float] = {}
    by_field: dict[str, list[NDArray[np.float64]]] = {}
    for name, pairs in sets.items():
        sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
        found = pseudo_log_likelihoods(subject, sentences)
        good, bad = found[::2], found[1::2]
        right = (good > bad) + 0.5 * (good == bad)
        by_set[name] = float(right.mean())
        for pair, one in zip(pairs, right, strict=True):
            by_field.setdefault(pair.field, []).append(one)
        tell(1)
    everything = np.concatenate([np.asarray(found) for found in by_field.values()])
    return Preference(
        accuracy=float(everything.mean()),
        n_pairs=len(everything),
        fields={name: float(np.mean(found)) for name, found in by_field.items()},
        sets=by_set,
    )


def pseudo_log_likelihoods(subject: Guesser, sentences: Sequence[str]) -> NDArray[np.float64]:
    """Of each sentence, in nats; tokens that are special, as unknown ones are, count nothing."""
    questions: list[Question] = []
    owners: list[int] = []
    for sentence, ids in enumerate(subject.tokenizer.encode_ids(sentences)):
        for column, token in enumerate(ids):
            if token not in subject.tokenizer.special_ids:
                questions.append(masked(subject, ids, column, token))
                owners.append(sentence)
    losses, _ = ask(subject, questions)
    sums = np.zeros(len(sentences))
    np.subtract.at(sums, owners, losses)
    return sums
