"""Texts for load: pieces of the shipped corpus, of lengths that a seed decides."""

import itertools
import random
from collections.abc import Iterator

from model.corpus import shipped
from tests.chaos.client import post


def pieces(n: int, *, longest: int, seed: int = 0) -> list[str]:
    """Pieces of 1 to `longest` characters, each with a mask in it."""
    text, chosen = shipped().text, random.Random(seed)
    found = []
    for _ in range(n):
        length = chosen.randint(1, longest)
        start = chosen.randrange(len(text) - length)
        piece = text[start : start + length].strip() or "to be"
        at = chosen.randrange(len(piece))
        found.append(f"{piece[:at]}[MASK]{piece[at + 1 :]}")
    return found


def mixed(texts: list[str]) -> list[bytes]:
    """For each text a request, by turns to each of the routes."""
    routes = itertools.cycle(("/fill-mask", "/embed", "/attention"))
    return [post(route, {"inputs": text}) for route, text in zip(routes, texts, strict=False)]


def forever(requests: list[bytes], *, seed: int = 0) -> Iterator[bytes]:
    chosen = random.Random(seed)
    while True:
        yield chosen.choice(requests)
