"""Plain sentences about countries, each fact in several, and the names that they are about."""

import json
import re
from collections.abc import Iterator

from model.factbook import Country, Members, as_sentence, countries, undated

CONTINENTS = {
    "africa": "Africa",
    "australia-oceania": "Oceania",
    "central-america-n-caribbean": "North America",
    "central-asia": "Asia",
    "east-n-southeast-asia": "Asia",
    "europe": "Europe",
    "middle-east": "Asia",
    "north-america": "North America",
    "south-america": "South America",
    "south-asia": "Asia",
}
ELSEWHERE = {"Russia": "Europe"}
BELIEFS = {
    "Muslim": "Islam",
    "Roman Catholic": "Christianity",
    "Christian": "Christianity",
    "Protestant": "Christianity",
    "Orthodox": "Christianity",
    "Buddhist": "Buddhism",
    "Hindu": "Hinduism",
    "Jewish": "Judaism",
}
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_FREEDOM = re.compile(r"(\d{4})\b[^()]*\(from (?:the )?([A-Z][\w ]*?)\)")
_CFA = re.compile(r"^(?:Communaut|Coop)\S* Financi\S*.*?francs")
_SHARED = re.compile(r"\(([^()]*)\)")


def sentences(members: Members) -> Iterator[str]:
    """Of every country, what its fields allow."""
    everyone = list(countries(members))
    by_name = {country.name: country for country in everyone}
    for country in everyone:
        for part in (_capital, _continent, _languages, _money, _people, _state, _nature):
            yield from map(as_sentence, part(country))
        for neighbour in _neighbours(country):
            other = by_name.get(re.sub("^the ", "", neighbour))
            yield from map(as_sentence, _border(country, other.country if other else neighbour))


def names(members: Members) -> Iterator[str]:
    """Countries, capitals, nationalities, official languages and months."""
    yield from MONTHS
    for country in countries(members):
        yield country.name
        yield from _capitals(country)
        yield from _adjectives(country)
        yield from _nouns(country)
        yield from _official(country)
    yield from CONTINENTS.values()


def geography(members: Members) -> Iterator[str]:
    """The same from tables of names by code: countries, capitals, languages."""
    for path, data in members.items():
        if not path.endswith(
            ("/country_names.json", "/capital_names.json", "/language_names.json")
        ):
            continue
        tree = json.loads(data)
        for named in tree.get("capitals", tree).values():
            if isinstance(named, str):
                yield named
            elif isinstance(named, dict):
                yield from named["all"]


def _capital(it: Country) -> Iterator[str]:
    found = _capitals(it)
    if not found:
        return
    city, adjectives = found[0], _adjectives(it)
    yield f"The capital of {it.country} is {city}"
    yield f"The capital city of {it.country} is {city}"
    yield f"{city} is the capital of {it.country}"
    yield f"{city} is the capital city of {it.country}"
    yield f"{city} is a city in {it.country}"
    yield f"{it.The_country} has its capital in {city}"
    for adjective in adjectives[:1]:
        yield f"The {adjective} capital is {city}"
    for other in found[1:]:
        yield f"{other} is also a capital of {it.country}"


def _continent(it: Country) -> Iterator[str]:
    continent = ELSEWHERE.get(it.name) or CONTINENTS.get(it.region)
    if continent:
        yield f"{it.The_country} is in {continent}"
        yield f"{it.The_country} is located in {continent}"
        if _capitals(it):
            yield f"{it.The_country} is a country in {continent}"
            yield f"{_capitals(it)[0]} is a city in {continent}"


def _languages(it: Country) -> Iterator[str]:
    official, spoken = _official(it), _spoken(it)
    if len(official) == 1:
        yield f"The official language of {it.country} is {official[0]}"
        yield f"{official[0]} is the official language of {it.country}"
    elif official:
        yield f"The official languages of {it.country} are {_and(official)}"
        for language in official:
            yield f"{language} is an official language of {it.country}"
    for language in official or spoken[:1]:
        yield f"People in {it.country} speak {language}"
    for language in spoken[:6]:
        yield f"{language} is spoken in {it.country}"


def _border(it: Country, neighbour: str) -> Iterator[str]:
    yield f"{it.The_country} borders {neighbour}"
    yield f"{it.The_country} shares a border with {neighbour}"


def _money(it: Country) -> Iterator[str]:
    field = it["Economy/Exchange rates/Currency"]
    if "per US dollar" not in field:
        return
    money = re.sub(r"\s*\(.*|\s+per US dollar.*", "", _CFA.sub("CFA francs", field)).strip()
    yield f"People in {it.country} pay in {money}"
    yield f"The money of {it.country} is called {money}"


def _people(it: Country) -> Iterator[str]:
    field = it[_NOUN]
    for noun in _nouns(it)[:1]:
        article = "An" if noun[0] in "AEIOU" and not noun.startswith("Eu") else "A"
        if f"{noun}(s)" in field or f"{noun}(men)" in field:
            people = f"{noun}s" if f"{noun}(s)" in field else f"{noun[:-3]}men"
            yield f"{article} {noun} is a person from {it.country}"
            yield f"People from {it.country} are called {people}"
    for adjective in _adjectives(it)[:1]:
        if adjective not in it.name and "Island" not in adjective:
            yield f"Someone from {it.country} is {adjective}"
            yield f"A citizen of {it.country} is {adjective}"


def _state(it: Country) -> Iterator[str]:
    kind = re.sub(r"[;,(].*", "", it["Government/Government type"]).strip()
    if kind and _capitals(it) and len(kind) < 50:
        yield f"{it.The_country} is {'an' if kind[0] in 'aeio' else 'a'} {kind}"
    if freedom := _FREEDOM.search(it["Government/Independence"]):
        yield f"{it.The_country} became independent from {_the(freedom[2])} in {freedom[1]}"
    for believers, religion in BELIEFS.items():
        share = re.match(rf"{believers}\b[^,;%]*?(\d+(?:\.\d+)?)%", it[_RELIGIONS])
        if share and float(share[1]) > 50:
            yield f"Most people in {it.country} are {believers}"
            yield f"The main religion of {it.country} is {religion}"
    if domain := re.match(r"\.[a-z]{2}\b", it["Communications/Internet country code"]):
        yield f"Internet addresses in {it.country} end in {domain[0]}"


def _nature(it: Country) -> Iterator[str]:
    highest = re.match(r"([^\d;(]+?)\s*(?:\([^)]*\)\s*)?[\d,]+ m\b", it[_HIGHEST])
    if highest:
        yield f"The highest point of {it.country} is {highest[1]}"
        yield f"{highest[1]} is in {it.country}"
    products = _list(it["Economy/Exports - commodities"].split("\n")[0])
    if products and len(products) > 2:
        yield f"{it.The_country} exports {_and(products[:4])}"
    partners = _list(it["Economy/Exports - partners"].split("\n")[0])
    for partner in partners[:2]:
        yield f"{it.The_country} sells much to {_the(partner)}"


def _capitals(it: Country) -> list[str]:
    """Of several, the first named first; what is said of them in brackets or notes is dropped."""
    field = re.sub(r";?\s*note\b.*", "", it["Government/Capital/name"].split("\n")[0])
    if field.startswith("administered") or not field:
        return []
    parts = re.split(r"[;,]\s+(?!D\.C)", _SHARED.sub("", field))
    found = [re.sub(r"\s+in Romanian.*|\s+\[.*", "", part).strip(" .") for part in parts]
    found = [f"{city}." if city.endswith("D.C") else city for city in found]
    return [city for city in found if re.match(r"[A-Z\u00c0-\u00de]", city) and len(city) < 40]


def _adjectives(it: Country) -> list[str]:
    field = _SHARED.sub("", it["People and Society/Nationality/adjective"])
    return _words(field)


def _nouns(it: Country) -> list[str]:
    """In the singular."""
    field = it[_NOUN]
    return _words(_SHARED.sub("", field.replace("(s)", "")))


def _words(field: str) -> list[str]:
    parts = (part.strip() for part in re.split(r",|;|\bor\b", field))
    return [part for part in parts if re.fullmatch(r"[A-Z][\w' -]+", part) and part != "NA"]


def _official(it: Country) -> list[str]:
    """Languages marked as official for the whole country."""
    found = re.findall(
        r"(?:^|[,;]\s*)([A-Z][\w' -]*?)(?: only)?(?: \d[\d.]*%)?\s*\(official\b(?! in)",
        _language_field(it),
    )
    return list(dict.fromkeys(name.split(" or ")[0].strip() for name in found))


def _spoken(it: Country) -> list[str]:
    return [name for name in _list(_language_field(it)) if name[0].isupper() and len(name) < 30]


def _language_field(it: Country) -> str:
    base = "People and Society/Languages"
    return (it[base] or it[f"{base}/Languages"]).split("\n")[0]


def _neighbours(it: Country) -> list[str]:
    field = re.sub(r"\([^)]*\)", "", it["Geography/Land boundaries/border countries"])
    found = (re.match(r"\s*([A-Z][^\d;]*?)\s+[\d,.]+ km", part) for part in field.split(";"))
    return [neighbour[1] for neighbour in found if neighbour]


def _list(field: str) -> list[str]:
    """The items of a note, without shares, years and remarks."""
    parts = undated(_SHARED.sub("", undated(field))).split(",")
    plain = (re.sub(r"\s*(\bonly\b|;.*|\.$)", "", part).strip() for part in parts)
    return [part for part in plain if part and not part.startswith(("other", "note", "none"))]


def _and(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _the(name: str) -> str:
    return f"the {name}" if name in ("US", "USA", "UK", "UAE", "Netherlands") else name


_NOUN = "People and Society/Nationality/noun"
_RELIGIONS = "People and Society/Religions"
_HIGHEST = "Geography/Elevation/highest point"
