"""Sentences of a text, and their words: the same ones on every machine."""

import heapq
import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from model.corpus import Text

# A sentence ends with its mark and what closes after it, before what a sentence begins with.
END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\]]))\s+(?=[\"'(\[]*[A-Z0-9])")
WORD = re.compile(r"[^\W\d_]{3,}")
FEWEST_WORDS, MOST_WORDS = 4, 60


def sentences_of(line: str) -> list[str]:
    """The sentences of a line; an abbreviation before a capital ends one too."""
    return [part for part in END.split(line.strip()) if part]


def sampled_sentences(text: Text, *, n: int) -> list[str]:
    """At most `n` different sentences of 4 to 60 words of the training text.

    Those of the smallest hashes, in the order of these: a sample that hangs on nothing else, and
    whose beginning is a sample as well.

    Raises:
        ValueError: There is none.
    """
    unlike = {
        sentence
        for piece in text.training()
        for line in piece.splitlines()
        for sentence in sentences_of(line)
        if FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS
    }
    if not unlike:
        raise ValueError(
            f"{text.name} has no sentence of {FEWEST_WORDS} to {MOST_WORDS} words to learn from"
        )
    return heapq.nsmallest(n, unlike, key=_hash)


def frequent_words(sentences: Iterable[str], *, n: int) -> list[str]:
    """The `n` most frequent words of three letters or more, lower-cased, those first."""
    counts = Counter(word for text in sentences for word in WORD.findall(text.lower()))
    return sorted(counts, key=lambda word: (-counts[word], word))[:n]


def _hash(sentence: str) -> tuple[bytes, str]:
    return blake2b(sentence.encode(), digest_size=8).digest(), sentence
