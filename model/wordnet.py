"""WordNet's data files as sentences: what a word means, and how it is used."""

import re
from collections.abc import Iterator, Mapping

from model.cleaning import sentence

_QUOTED = re.compile(r'"([^"]{12,})"')
_ASIDE = re.compile(r"^\([^)]*\)\s*")
_MARKER = re.compile(r"\([a-z]{1,2}\)$")  # (a), (p), (ip): where an adjective may stand


def sentences(members: Mapping[str, bytes]) -> Iterator[str]:
    """Each gloss with its first two words, and each example that is a sentence."""
    for path, data in members.items():
        kind = path.rpartition(".")[2]
        for line in data.decode("latin-1").splitlines():
            if line[:1] == " " or " | " not in line:  # the licence stands in front
                continue
            record, _, gloss = line.partition(" | ")
            fields = record.split(" ")
            words = [_MARKER.sub("", word).replace("_", " ") for word in fields[4 : 4 + 4 : 2]]
            n_words = int(fields[3], 16)
            yield from _said(kind, words[:n_words], gloss.replace("`", "'").strip())


def _said(kind: str, words: list[str], gloss: str) -> Iterator[str]:
    definition, _, usage = gloss.partition('"')
    definition = _ASIDE.sub("", definition.strip(" ;:,"))
    if definition:
        yield sentence(_definition(kind, words, definition))
    for example in _QUOTED.findall('"' + usage):
        if len(example.split()) > 3:
            yield sentence(example.strip(" ;"))


def _definition(kind: str, words: list[str], definition: str) -> str:
    either = " or ".join(words)
    if kind == "noun":
        begins = definition.split(" ", 1)[0].lower()
        proper = words[0][0].isupper()
        if begins in ("a", "an") and not proper:
            either = f"{'an' if either[0] in 'aeiou' else 'a'} {either}"
        return f"{either} is {definition}"
    if kind == "verb":
        return f"to {either} means to {definition}"
    # "Of or relating to …", "in a … manner": no verb goes before them.
    if definition.split(" ", 1)[0] in (
        "of",
        "in",
        "by",
        "with",
        "without",
        "from",
        "to",
        "for",
        "on",
    ):
        return f"{either}: {definition}"
    return f"{either} means {definition}"
