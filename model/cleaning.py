"""Text made plain: one paragraph a line, one form of each space and quote."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator

HELD_OUT_ONE_IN = 50

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc`\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2212\u00ad", "-"),
        "\u2026": "...",
    }
)
_DROPPED = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd]|[\x00-\x08\x0e-\x1f\x7f]"
)
_SPACES = re.compile(r"\s+")
# What removed pronunciations and references leave: brackets with nothing but separators inside.
_EMPTY = re.compile(r"\s*[(\[][\s,;:/.-]*[)\]]")
_BEFORE = re.compile(r"\s+([,;:.!?)\]](?:\s|$))")
_AFTER = re.compile(r"([(\[])[\s,;]+")
_SENTENCE = re.compile(r"(?<=[.!?][\"')\]]|.[.!?])\s+(?=[\"'(\[]?[A-Z0-9])")


def clean(text: str) -> str:
    """NFC, plain quotes and spaces, on one line."""
    text = _DROPPED.sub("", unicodedata.normalize("NFC", text)).translate(_PLAIN)
    text = _SPACES.sub(" ", text)
    text = _EMPTY.sub("", text)
    return _BEFORE.sub(r"\1", _AFTER.sub(r"\1", text)).strip()


def paragraphs(text: str) -> Iterator[str]:
    """Wrapped lines joined; a blank line ends a paragraph."""
    return (part.strip() for part in re.split(r"\n\s*\n", text.replace("\r", "")))


def pieces(text: str, *, n_characters: int) -> Iterator[str]:
    """Whole sentences, as many as make about `n_characters`."""
    piece = ""
    for sentence in _SENTENCE.split(text):
        if piece and len(piece) + len(sentence) > n_characters:
            yield piece
            piece = ""
        piece = f"{piece} {sentence}" if piece else sentence
    if piece:
        yield piece


def sentence(text: str) -> str:
    """A phrase with a capital in front and a stop behind."""
    text = text.strip().rstrip(";,:")
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?\"'" else ".")


def likeness(line: str) -> bytes:
    """Equal for lines that differ in case, spaces or punctuation only."""
    words = "".join(filter(str.isalnum, line.casefold()))
    return hashlib.blake2b(words.encode(), digest_size=12).digest()


def is_held_out(line: str) -> bool:
    """Whether a line is to score on: one in `HELD_OUT_ONE_IN`, the same on every machine."""
    return int.from_bytes(hashlib.sha1(line.encode()).digest()) % HELD_OUT_ONE_IN == 0
