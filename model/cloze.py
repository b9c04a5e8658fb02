"""Facts as cloze questions: "Paris is the capital of [MASK]".

A relation has several phrasings. Facts are split in two halves by a hash of the fact; the phrasing
that does best on the one half is asked on the other, whose scores count. Words that are several
tokens of the vocabulary cannot stand at one mask: their facts are left out, and counted.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.corpus import from_files
from model.guesser import Guesser
from model.questions import Question, ask, blanks
from model.records import json_of, objects_of
from model.tokenizer import MASK

SUBJECT, OBJECT = "[X]", "[Y]"


@dataclass(frozen=True)
class Fact:
    """A subject and an object in a relation."""

    relation: str
    subject: str
    object: str

    @property
    def chooses(self) -> bool:
        """Whether it is in the half that phrasings are chosen on: an even sha1 of its three parts,
        a tab between each.
        """
        text = f"{self.relation}\t{self.subject}\t{self.object}"
        return hashlib.sha1(text.encode()).digest()[-1] % 2 == 0


@dataclass(frozen=True)
class Hits:
    """Shares of facts whose object is the likeliest, and among the ten likeliest, of all tokens."""

    n_facts: int
    top1: float
    top10: float

    def __str__(self) -> str:
        return f"top-1 {self.top1:.3f}  top-10 {self.top10:.3f}  ({self.n_facts:,} facts)"


@dataclass(frozen=True)
class Relation:
    """A relation's scores with its phrasing."""

    phrasing: str
    hits: Hits


@dataclass(frozen=True)
class Cloze:
    """What an encoder knows of some facts.

    Attributes:
        hits: On the half that counts.
        choosing: On the half that the phrasings were chosen on, with those phrasings: a little
            high, as they were chosen on it.
        relations: Those with facts in the half that counts.
        n_several_tokens: Facts left out, as their object is no single token.
        n_no_phrasing: Facts left out, as their relation has no phrasing.
    """

    hits: Hits
    choosing: Hits
    relations: Mapping[str, Relation]
    n_several_tokens: int
    n_no_phrasing: int

    def __str__(self) -> str:
        left = f"left out: {self.n_several_tokens:,} of several tokens"
        lines = [f"cloze: {self.hits}; {left}, {self.n_no_phrasing:,} without a phrasing"]
        lines += [f"  the half that phrasings were chosen on: {self.choosing}"]
        lines += [f"  {name:6} {of.hits}  {of.phrasing}" for name, of in self.relations.items()]
        return "\n".join(lines)


def facts_of(path: Path) -> list[Fact]:
    """The facts of a JSON-lines file with the fields `relation`, `subject` and `object`.

    Raises:
        ValueError: A line is no such object.
    """
    fields = {name: (name,) for name in ("relation", "subject", "object")}
    return [Fact(**found) for found in objects_of(path, fields)]


def phrasings_of(path: Path) -> dict[str, list[str]]:
    """Phrasings by relation: a JSON object of arrays of texts with one [X] and one [Y] each.

    Raises:
        ValueError: It is something else.
    """
    found = json_of(from_files([path]).text, str(path))
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no JSON object from relations to arrays of phrasings")
    for relation, texts in found.items():
        if not (isinstance(texts, list) and texts):
            raise ValueError(f"{path}: {relation!r} has no array of phrasings")
        for text in texts:
            if not (isinstance(text, str) and text.count(SUBJECT) == text.count(OBJECT) == 1):
                raise ValueError(f"{path}: {relation!r}: {text!r} is no text with one [X], one [Y]")
    return found


def cloze(
    subject: Guesser,
    facts: Sequence[Fact],
    phrasings: Mapping[str, Sequence[str]],
    *,
    tell: Callable[[int], None] = lambda done: None,
) -> Cloze:
    """Choose a phrasing of each relation on one half of the facts, and score on the other.

    A phrasing is chosen by its top-10, then by its mean loss; without facts to choose on it is the
    first one.

    Args:
        tell: Is told how many more relations are done.

    Raises:
        ValueError: No fact can be scored.
    """
    of: dict[str, list[Fact]] = {}
    for fact in facts:
        of.setdefault(fact.relation, []).append(fact)
    asked: dict[str, _Asked] = {}
    for relation, theirs in of.items():
        if relation in phrasings:
            asked[relation] = _ask(subject, theirs, phrasings[relation])
        tell(1)
    ranks = [one.ranks for one in asked.values()]
    n_no_phrasing = sum(len(theirs) for name, theirs in of.items() if name not in phrasings)
    n_several_tokens = sum(one.n_several_tokens for one in asked.values())
    if not sum(map(len, ranks)):
        raise ValueError(
            f"none of {len(facts):,} facts can be scored: {n_several_tokens:,} have an object of "
            f"several tokens, {n_no_phrasing:,} no phrasing; the rest only choose phrasings"
        )
    return Cloze(
        hits=_hits(ranks),
        choosing=_hits([one.choosing for one in asked.values()]),
        relations={
            name: Relation(phrasings[name][one.best], _hits([one.ranks]))
            for name, one in asked.items()
            if len(one.ranks)
        },
        n_several_tokens=n_several_tokens,
        n_no_phrasing=n_no_phrasing,
    )


@dataclass(frozen=True)
class _Asked:
    """The answers of one relation with its best phrasing: ranks in either half."""

    best: int
    choosing: NDArray[np.int64]
    ranks: NDArray[np.int64]
    n_several_tokens: int


def _ask(subject: Guesser, facts: Sequence[Fact], phrasings: Sequence[str]) -> _Asked:
    choosing: list[list[Question]] = []
    scored: list[list[Question]] = []
    for fact in facts:
        sentences = [
            (text.replace(OBJECT, MASK).replace(SUBJECT, fact.subject), fact.object)
            for text in phrasings
        ]
        questions = [question for question in blanks(subject, sentences) if question]
        if len(questions) == len(phrasings):
            (choosing if fact.chooses else scored).append(questions)
    losses, found = ask(subject, [question for each in choosing for question in each])
    ranks = found.reshape(-1, len(phrasings))
    best = 0
    if choosing:
        hits, loss = (ranks < 10).sum(axis=0), losses.reshape(ranks.shape).mean(axis=0)
        best = max(range(len(phrasings)), key=lambda i: (hits[i], -loss[i]))
    n_several_tokens = len(facts) - len(choosing) - len(scored)
    answers = ask(subject, [questions[best] for questions in scored])
    return _Asked(best, ranks[:, best], answers[1], n_several_tokens)


def _hits(ranks: Sequence[NDArray[np.int64]]) -> Hits:
    of = np.concatenate(ranks)
    n = max(1, len(of))
    return Hits(len(of), float((of < 1).sum()) / n, float((of < 10).sum()) / n)
