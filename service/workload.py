"""Texts to measure with: lines of a file, or passages of the plays that ship, of mixed lengths."""

import json
import lzma
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from model.tokenizer import MASK, Tokenizer
from service.load import Ask

# Lengths are log-normal, as those of queries and sentences are, and cut at the longest.
MEDIAN, P95, SHORTEST, LONGEST = 20, 120, 5, 256
Z95 = 1.6449  # standard deviations below which 95 % of a normal distribution lies


@dataclass(frozen=True)
class Sample:
    """A text and its length in tokens, where it is known."""

    text: str
    n_tokens: int | None = None


def passages(
    n: int, *, seed: int, tokenizer: Tokenizer | None = None, longest: int = LONGEST
) -> list[Sample]:
    """Passages of the plays that ship: their lengths' median is 20, 5 % are beyond 120.

    Args:
        tokenizer: Lengths are counted in its tokens; in words without one.
        longest: None is longer.
    """
    chance = random.Random(seed)
    words, sigma = _plays().split(), math.log(P95 / MEDIAN) / Z95
    return [_passage(words, _length(chance, sigma, longest), chance, tokenizer) for _ in range(n)]


def _length(chance: random.Random, sigma: float, longest: int) -> int:
    length = round(chance.lognormvariate(math.log(MEDIAN), sigma))
    return min(longest, max(SHORTEST, length))


def _passage(
    words: Sequence[str], length: int, chance: random.Random, tokenizer: Tokenizer | None
) -> Sample:
    """A passage of at most `length` tokens, as near to it as whole words allow."""
    start = chance.randrange(len(words) - length)
    text = " ".join(words[start : start + length])
    if tokenizer is None:
        return Sample(text)
    encoded = tokenizer.encode(text)
    room = length - tokenizer.n_wrap
    if len(encoded.ids) > room:
        end = encoded.offsets[room][0]
        cut = text.rfind(" ", 0, end + 1)  # the word that does not fit goes as a whole
        text = text[: cut if cut > 0 else end].rstrip()
    return Sample(text, tokenizer.n_wrap + len(tokenizer.encode(text).ids))


def _plays() -> str:
    packed = resources.files("model").joinpath("data/shakespeare.txt.xz").read_bytes()
    return lzma.decompress(packed).decode()


def from_file(path: Path) -> list[Sample]:
    """Texts of a file, one a line: plain, or in `.jsonl` an object with `text` and maybe `tokens`.

    Raises:
        ValueError: There is none, or a line is no such object.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} has no texts")
    if path.suffix != ".jsonl":
        return [Sample(line) for line in lines]
    samples = []
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            samples.append(Sample(found["text"], found.get("tokens")))
        except (ValueError, KeyError, TypeError):
            raise ValueError(f'{path}, line {number}: {{"text": "…"}} is wanted') from None
    return samples


def masked(
    samples: Sequence[Sample], *, seed: int, tokenizer: Tokenizer | None = None
) -> list[Sample]:
    """The texts with one word of each masked, their lengths counted anew by a tokenizer."""
    chance, found = random.Random(seed), []
    for sample in samples:
        words = sample.text.split(" ")
        words[chance.randrange(len(words))] = MASK
        text = " ".join(words)
        n_tokens = sample.n_tokens
        if tokenizer is not None:
            n_tokens = tokenizer.n_wrap + len(tokenizer.encode(text).ids)
        found.append(replace(sample, text=text, n_tokens=n_tokens))
    return found


def asks(
    samples: Sequence[Sample],
    url: str,
    route: str,
    *,
    n_texts: int = 1,
    field: str = "inputs",
    extra: dict[str, object] | None = None,
    headers: Sequence[str] = (),
) -> list[Ask]:
    """The requests that carry the texts, `n_texts` each, as a list in `field` of a JSON body."""
    host = urlsplit(url).netloc
    head = [f"POST {route} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers]
    return [
        _ask(head, part, {field: [sample.text for sample in part], **(extra or {})})
        for part in _parts(samples, n_texts)
    ]


def _ask(head: Sequence[str], part: Sequence[Sample], body: dict[str, object]) -> Ask:
    data = orjson.dumps(body)
    lines = [*head, f"Content-Length: {len(data)}", "", ""]
    counts = [sample.n_tokens for sample in part if sample.n_tokens is not None]
    n_tokens = sum(counts) if len(counts) == len(part) else None
    return Ask("\r\n".join(lines).encode() + data, len(part), n_tokens)


def _parts(samples: Sequence[Sample], size: int) -> Iterator[Sequence[Sample]]:
    if len(samples) < size:
        raise ValueError(f"{len(samples)} texts; requests of {size} were asked for")
    for start in range(0, len(samples) - size + 1, size):
        yield samples[start : start + size]
