"""How the members of each source become lines of text: `READERS`."""

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from model import factbook, places, wikitext, wordnet
from model.cleaning import paragraphs, pieces, sentence

Members = Mapping[str, bytes]

FIRST_MODERN_ADDRESS = 1945
PIECE_CHARACTERS = 500
VERSE = ("bible", "blake", "milton", "shakespeare", "whitman")
# Facts that a demonstration should not greet anyone with.
CRUDE = re.compile(
    r"\b(sex\w*|suicid\w*|rap(?:e[ds]?|ist)|porn\w*|penis\w*|vagina\w*|orgasm\w*|testic\w*|"
    r"erecti\w*|masturb\w*|prostitut\w*|condom\w*|semen|sperm\w*|breasts?|genital\w*|"
    r"shit\w*|fuck\w*|poop\w*|fart\w*|urin\w*|naked|nude\w*|murder\w*|tortur\w*)\b",
    re.IGNORECASE,
)
TITLES = (
    "Duke|Duchess|King|Queen|Count|Countess|Prince|Princess|Earl|Emperor|Empress|Archduke|Pope|"
    "Archduchess|Margrave|Elector|Landgrave|Lord|Lady|Baron|Baroness|Viscount|Marquess|Marquis|"
    "Grand|Holy|Regent|President|Electress|Dauphin|Infanta|Tsar|Sultan|Bishop|Saint|Sir|Governor|"
    r"Chancellor|Crown|Prime|First|Vice|Chief|co-founder|founder|wife|son|daughter|the|\d"
)


def wiki(members: Members) -> Iterator[str]:
    """The first paragraphs of articles."""
    for data in members.values():
        for article in json.loads(data).values():
            yield from article["extract"].split("\n")


def enwiki(members: Members) -> Iterator[str]:
    """The prose of whole articles."""
    for data in members.values():
        for article in wikitext.articles(data):
            yield from wikitext.prose(article)


def events(members: Members) -> Iterator[str]:
    """`1492 - The crew of …` as `In 1492, the crew of …`."""
    for year, text in _dated(members):
        text = re.sub(r"^(In|On|At|The|An?|After|During|Over)\b", lambda w: w[0].lower(), text)
        yield sentence(f"In {year}, {text}")


def lives(members: Members) -> Iterator[str]:
    """`1344 - Birthday of X, Y (d. 1361)` as `X, a Y, was born in 1344 and died in 1361.`"""
    for year, text in _dated(members):
        found = re.match(r"(Birthday|Death) of ([^,()]+)(?:, ([^()]+?))?\s*(?:\((.*)\))?\.?$", text)
        if not found:
            continue
        other = re.fullmatch(r"[bd]\. (?:c\. )?(\d+(?: BC)?)", found[4] or "")
        known = {
            found[1]: year,
            "Death" if found[1] == "Birthday" else "Birthday": other and other[1],
        }
        said = [
            f"{verb} in {known[key]}"
            for key, verb in (("Birthday", "was born"), ("Death", "died"))
            if known.get(key)
        ]
        who = f"{found[2].strip()}, {_described(found[3])}," if found[3] else found[2].strip()
        yield f"{who} {' and '.join(said)}."


def facts(members: Members) -> Iterator[str]:
    """A fact a line, the crude ones left out."""
    for data in members.values():
        yield from (sentence(line) for line in data.decode().splitlines() if not CRUDE.search(line))


def recipes(members: Members) -> Iterator[str]:
    """The steps of each recipe in one paragraph."""
    for data in members.values():
        for recipe in json.loads(data).values():
            steps = (re.sub(r"[*#]+\s*", "", html.unescape(step)) for step in recipe["steps"])
            yield " ".join(map(sentence, filter(None, steps)))


def gutenberg(members: Members) -> Iterator[str]:
    """The paragraphs of books in prose, without their headings."""
    for path, data in members.items():
        if PurePosixPath(path).name.startswith(VERSE):
            continue
        for paragraph in paragraphs(data.decode("latin-1")):
            if not paragraph.isupper() and not re.match(r"\[|CHAPTER|VOLUME|\*", paragraph):
                yield re.sub(r"(?<!\w)_|_(?!\w)", "", paragraph)


def addresses(members: Members) -> Iterator[str]:
    """State of the Union addresses since 1945, some sentences at a time."""
    for path, data in members.items():
        if int(PurePosixPath(path).name[:4]) >= FIRST_MODERN_ADDRESS:
            spoken = re.sub(
                r"\s*[\[(](?:Applause|Laughter|Inaudible)[\])]\.?",
                " ",
                data.decode(),
                flags=re.IGNORECASE,
            )
            yield from pieces(" ".join(spoken.split()), n_characters=PIECE_CHARACTERS)


def _dated(members: Members) -> Iterator[tuple[str, str]]:
    for data in members.values():
        for line in data.decode().splitlines():
            year, dash, text = line.strip().partition(" - ")
            if dash and text and re.fullmatch(r"(?:AD )?\d+(?: BC)?", year):
                yield year, text.strip()


def _described(what: str) -> str:
    what = what.strip()
    if re.match(rf"(?:{TITLES})\b|\d", what):
        return what
    return f"{'an' if what[0] in 'AEIOaeio' and not what.startswith(('Eu', 'One')) else 'a'} {what}"


READERS: dict[str, Callable[[Members], Iterator[str]]] = {
    "wiki": wiki,
    "enwiki": enwiki,
    "factbook": factbook.prose,
    "places": places.sentences,
    "names": places.names,
    "geography": places.geography,
    "events": events,
    "lives": lives,
    "facts": facts,
    "recipes": recipes,
    "wordnet": wordnet.sentences,
    "gutenberg": gutenberg,
    "addresses": addresses,
}
