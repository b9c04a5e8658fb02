"""Capitals: "The capital of France is [MASK].", of the countries whose capital is one token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.corpus import from_files
from model.guesser import Guesser
from model.questions import Question, ask, blanks
from model.records import json_of, lines_of
from model.tokenizer import MASK

PHRASING = "The capital of {} is " + MASK + "."


@dataclass(frozen=True)
class Capitals:
    """Shares of countries whose capital is the likeliest of all tokens, or among the first five.

    Attributes:
        ranks: By country, 1 for the likeliest token.
        n_several_tokens: Countries left out, as no capital of theirs is a single token.
    """

    top1: float
    top5: float
    ranks: Mapping[str, int]
    n_several_tokens: int

    def __str__(self) -> str:
        countries = f"{len(self.ranks)} countries; left out: {self.n_several_tokens}"
        shares = f"top-1 {self.top1:.3f}  top-5 {self.top5:.3f}"
        return f"capitals: {shares}  ({countries} of several tokens)"


def capitals_of(path: Path) -> dict[str, list[str]]:
    """The capitals of each country of a file.

    A `.json` file holds an object from countries to a capital or an array of several; any other a
    country and its capital on a line, a tab between.

    Raises:
        ValueError: It is something else, or names none.
    """
    found: dict[str, list[str]] = {}
    if path.name.removesuffix(".xz").endswith(".json"):
        of = json_of(from_files([path]).text, str(path))
        if not isinstance(of, dict):
            raise ValueError(f"{path} is no JSON object from countries to capitals")
        for country, said in of.items():
            names = [said] if isinstance(said, str) else said
            if not (isinstance(names, list) and all(isinstance(n, str) and n for n in names)):
                raise ValueError(f"{path}: {country!r} has neither a capital nor an array of some")
            found[country] = names
    else:
        for where, line in lines_of(path):
            fields = [field.strip() for field in line.split("\t")]
            if not (len(fields) == 2 and all(fields)):
                raise ValueError(f"{where} is no country and its capital with one tab between")
            found.setdefault(fields[0], []).append(fields[1])
    if not found:
        raise ValueError(f"{path} names no country")
    return found


def capitals(subject: Guesser, of: Mapping[str, Sequence[str]]) -> Capitals:
    """Ask for the capital of each country; of several, the likeliest counts.

    Raises:
        ValueError: None is a single token.
    """
    named = [(country, capital) for country, capitals in of.items() for capital in capitals]
    found = blanks(subject, [(PHRASING.format(country), capital) for country, capital in named])
    asked: list[tuple[str, Question]] = [
        (country, question)
        for (country, _), question in zip(named, found, strict=True)
        if question is not None
    ]
    if not asked:
        raise ValueError(f"no capital of {len(of)} countries is a single token of the vocabulary")
    _, answers = ask(subject, [question for _, question in asked])
    ranks: dict[str, int] = {}
    for (country, _), rank in zip(asked, answers.tolist(), strict=True):
        ranks[country] = min(rank + 1, ranks.get(country, rank + 1))
    places = np.array(list(ranks.values()))
    top1, top5 = float((places <= 1).mean()), float((places <= 5).mean())
    return Capitals(top1, top5, ranks, len(of) - len(ranks))
