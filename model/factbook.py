"""The World Factbook: a file a country, read as prose and as facts.

Its style is notes in lower case, parted by semicolons, with surnames in capitals.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

Members = Mapping[str, bytes]

# Fields that read as sentences once they begin with a capital and end with a stop.
PROSE = (
    "Introduction/Background",
    "Geography/Population distribution",
    "Geography/Geography - note",
    "Government/Country name/etymology",
    "Government/Capital/etymology",
    "Government/National anthem(s)/history",
    "Military and Security/Military - note",
    "Communications/Broadcast media",
)
# And those that need to be told what they are about.
NOTES = {
    "Geography/Location": "{The_country} is in {it}",
    "Geography/Climate": "The climate of {country} is {it}",
    "Geography/Terrain": "The land of {country} is {it}",
    "Geography/Natural resources": "The natural resources of {country} are {it}",
    "Environment/Environmental issues": "The environmental issues of {country} are {it}",
    "People and Society/Ethnic groups": "The ethnic groups of {country} are {it}",
    "People and Society/Religions": "The religions of {country} are {it}",
    "Economy/Industries": "The industries of {country} are {it}",
    "Economy/Agricultural products": "The farms of {country} produce {it}",
    "Economy/Exports - commodities": "The exports of {country} are {it}",
    "Economy/Exports - partners": "{The_country} exports to {it}",
    "Economy/Imports - commodities": "The imports of {country} are {it}",
    "Economy/Imports - partners": "{The_country} imports from {it}",
}
SHORT_NAMES = {
    "Congo (Brazzaville)": "Republic of the Congo",
    "DRC": "Democratic Republic of the Congo",
    "Holy See (Vatican City)": "Vatican City",
    "Gaza, Gaza Strip": "Gaza Strip",
    "The Gambia": "Gambia",
    "The Bahamas": "Bahamas",
    "Turkey (Turkiye)": "Turkey",
}
WITH_ARTICLE = re.compile(
    r"^(Bahamas|Comoros|Gambia|Maldives|Netherlands|Philippines|Seychelles|United .*|.* Islands|"
    r"Federated .*|(Democratic |Central African )?Republic.*|Gaza Strip|West Bank|"
    r"Isle of Man|British .*)$"
)
_ARTICLE = re.compile(r"^(?=Caribbean|Middle East|Mediterranean|Arctic|South Pacific)")
_TAG_BREAKS = re.compile(r"<\s*(?:br|p|/p|li|/li|ul|/ul)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_LABEL = re.compile(r"^(?:note|description|etymology)(?: \d+)?:\s*", re.IGNORECASE)
_DATED = re.compile(r"\s*\((?:FY)?\s*\d{4}[^)]*est\.\)|\s*\(\d{4}(?:/\d+)?\)")
_SHARE = re.compile(r"\s*(?:less than\s*)?[<>~]?\d+(?:\.\d+)?(?:\s*-\s*\d+(?:\.\d+)?)?\s*%")
_CAPITALS = re.compile(r"\b(?:[A-Z]['-])?[A-Z\u00c0-\u00de]{2,}(?:['-][A-Z\u00c0-\u00de]{2,})*\b")
# Surnames as short as acronyms are.
_SHORT_SURNAMES = {"KIM", "LEE", "RHEE", "ROH", "MAO", "HU", "XI", "LI", "PAZ", "DOS", "ROE", "COX"}


@dataclass(frozen=True)
class Country:
    """One file.

    Attributes:
        name: As people say it, without an article: "Netherlands".
        region: The folder it lies in.
        fields: Text by path: "Geography/Climate".
    """

    name: str
    region: str
    fields: Mapping[str, str]

    def __getitem__(self, path: str) -> str:
        return self.fields.get(path, "")

    @property
    def country(self) -> str:
        """The name within a sentence."""
        return f"the {self.name}" if WITH_ARTICLE.match(self.name) else self.name

    @property
    def The_country(self) -> str:
        """The name where a sentence begins."""
        return self.country[0].upper() + self.country[1:]


def countries(members: Members) -> Iterator[Country]:
    """Those of the files that have a name, in order of their paths."""
    for path, data in members.items():
        fields = dict(_flat(json.loads(data)))
        names = [
            fields.get(f"Government/Country name/conventional {length} form", "none")
            for length in ("short", "long")
        ]
        found = next((name for name in names if name.lower() != "none"), "")
        name = SHORT_NAMES.get(found) or re.sub(r"\s*(?:\([^)]*\)|;.*)", "", found)
        if name:
            yield Country(name, PurePosixPath(path).parent.name, fields)


def prose(members: Members) -> Iterator[str]:
    """Sentences and paragraphs of every country, and of the world."""
    acronyms = _acronyms(members)
    for data in members.values():
        fields = dict(_flat(json.loads(data)))
        for path in PROSE:
            for line in fields.get(path, "").split("\n"):
                yield as_sentence(lowered(_LABEL.sub("", line), acronyms))
    for country in countries(members):
        for path, template in NOTES.items():
            for line in country[path].split("\n")[:1]:
                it = _ARTICLE.sub(
                    "the ", undated(line).rstrip(".").replace("Bahamas, The", "the Bahamas")
                )
                if it and not it.startswith(("none", "NA")):
                    names = {"country": country.country, "The_country": country.The_country}
                    yield as_sentence(lowered(template.format(it=it, **names), acronyms))


def as_sentence(text: str) -> str:
    """A note with a capital in front and a stop behind."""
    text = text.strip().rstrip(";,:")
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def undated(text: str) -> str:
    """Without shares and years of estimates."""
    return re.sub(r"\s+([,;)])", r"\1", _SHARE.sub("", _DATED.sub("", text))).strip()


def lowered(text: str, acronyms: frozenset[str]) -> str:
    """Surnames in capitals as the rest of the world writes them."""

    def name(found: re.Match[str]) -> str:
        word = found[0]
        short = len(word) <= 4 and word not in _SHORT_SURNAMES
        if short or word in acronyms or any(part in acronyms for part in word.split("-")):
            return word
        return re.sub(r"[^\W\d_]+", lambda part: part[0].capitalize(), word)

    return _CAPITALS.sub(name, text)


def _acronyms(members: Members) -> frozenset[str]:
    """Words in capitals that somewhere stand alone in brackets, or behind an article."""
    text = "\n".join(html.unescape(data.decode()) for data in members.values())
    alone = re.findall(
        r"\(([A-Z]{3,}(?:-[A-Z]+)?)[);,]|\b(?:the|an?) ([A-Z]{4,})\b(?! [A-Z])", text
    )
    return frozenset(word for pair in alone for word in pair if word)


def _flat(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}/{key}" if path else key)
        elif key == "text" and isinstance(value, str):
            lines = _TAG_BREAKS.sub("\n", html.unescape(value))
            plain = (re.sub(r"\s+", " ", _TAG.sub("", line)).strip() for line in lines.split("\n"))
            yield path, "\n".join(line for line in plain if line)
