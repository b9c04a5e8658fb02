"""Builds of a small mix, and the text that they are to the trainer."""

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from model.cleaning import is_held_out
from model.corpus import LONGEST_HELD_OUT, cache_directory
from model.demo_corpus import DemoCorpus, assemble, built
from model.fetching import NotToBeHad
from model.places import MONTHS
from model.sources import MIXES, NAMES, Package, Source
from model.streams import PIECE_CHARACTERS

PACKAGE = Package("pypi", "texts", "1.0", "0" * 64)
OFTEN = Source("often", PACKAGE, "often", "facts", "CC BY-SA 4.0", 3.0, 20)
SELDOM = Source("seldom", PACKAGE, "seldom", "facts", "public domain", 0.25, 20)
MIX = (OFTEN, SELDOM)
NUMBERS = [f"the number of the line is {i}" for i in range(2000)]
TEXTS = {
    "often": "\n".join([*NUMBERS[:1000], "too short", NUMBERS[3].upper() + "!"]),
    "seldom": "\n".join(NUMBERS[990:]),
}


@pytest.fixture(autouse=True)
def small_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(MIXES, "demo", MIX)


def fetch(source: Source) -> Mapping[str, bytes]:
    if source in NAMES:
        return (
            {"en-us/country_names.json": json.dumps({"FRA": "France", "GBR": "The UK"}).encode()}
            if source.name == "geography"
            else {}
        )
    if source.members not in TEXTS:
        raise NotToBeHad("gone")
    return {"x": TEXTS[source.members].encode()}


def make(*sources: Source, into: Path | None = None) -> DemoCorpus:
    into = into or cache_directory() / "corpora"
    return DemoCorpus(assemble("demo", sources or MIX, fetch=fetch, into=into, tell=lambda _: None))


def lines_of(corpus: DemoCorpus) -> Counter[str]:
    return Counter("".join(corpus.training()).splitlines())


def test_a_line_that_two_sources_have_is_kept_in_the_first_only() -> None:
    rows = make().index["sources"]
    assert [(row["name"], row["lines"]) for row in rows] == [("often", 1000), ("seldom", 1000)]


def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = make(), make(into=tmp_path / "other")
    for path in one.directory.iterdir():
        assert path.read_bytes() == (other.directory / path.name).read_bytes()
    assert (one.sha256, one.n_characters) == (other.sha256, other.n_characters)
    assert one.held_out() == other.held_out()


def test_a_line_is_trained_on_as_often_as_its_source_weighs() -> None:
    counts = lines_of(make())
    often = {line: n for line, n in counts.items() if int(line.split()[-1][:-1]) < 1000}
    seldom = counts - Counter(often)
    assert set(often.values()) == {3}
    assert set(seldom.values()) == {1}
    assert abs(len(seldom) - 0.25 * 980) < 50  # more than three standard deviations


def test_the_held_out_lines_are_those_of_their_hash_and_are_never_trained_on() -> None:
    corpus = make()
    held_out = corpus.held_out().splitlines()
    assert held_out
    assert all(map(is_held_out, held_out))
    assert len(held_out) == len(set(held_out))
    assert not set(held_out) & lines_of(corpus).keys()
    often = [line for line in (corpus.directory / "often.txt").read_text().splitlines()]
    assert set(filter(is_held_out, often)) <= set(held_out)


def test_sources_and_copies_are_mixed_finely() -> None:
    text = "".join(make().training()).splitlines()
    quarter = len(text) // 4
    seldom = [
        sum(int(line.split()[-1][:-1]) >= 1000 for line in text[i : i + quarter])
        for i in range(0, 4 * quarter, quarter)
    ]
    assert min(seldom) > 30
    assert sum(a == b for a, b in itertools.pairwise(text)) < 10  # by chance about 2 of 980


def test_pieces_end_where_lines_end_and_fit_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXES, "demo", (dataclasses.replace(OFTEN, weight=30.0), SELDOM))
    pieces = list(make().training())
    assert len(pieces) > 2
    assert all(piece.endswith("\n") for piece in pieces)
    assert max(map(len, pieces)) < PIECE_CHARACTERS + 100


def test_a_long_held_out_part_is_cut_to_what_can_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.demo_corpus.LONGEST_HELD_OUT", 100)
    assert 0 < len(make().held_out()) <= 100 < LONGEST_HELD_OUT


def test_another_weight_is_another_text(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make()
    before = (corpus.sha256, corpus.index["sha256"])
    monkeypatch.setitem(MIXES, "demo", (dataclasses.replace(OFTEN, weight=2.0), SELDOM))
    again = make()
    assert again.sha256 != before[0]
    assert again.index["sha256"] == before[1]  # the build itself has no weights in it


def test_a_missing_source_shrinks_the_mix_and_changes_its_name_and_hash() -> None:
    whole = make()
    gone = dataclasses.replace(SELDOM, members="nowhere")
    said: list[str] = []
    directory = assemble(
        "demo", (OFTEN, gone), fetch=fetch, into=cache_directory() / "corpora", tell=said.append
    )
    less = DemoCorpus(directory)
    assert less.name == "demo without seldom"
    assert said[-1] == "seldom is left out: gone"
    assert less.index["sha256"] != whole.index["sha256"]
    assert less.licence == "CC BY-SA 4.0"
    assert less.held_out()


def test_without_any_source_nothing_is_left_and_what_was_there_stays(tmp_path: Path) -> None:
    before = make()
    gone = dataclasses.replace(SELDOM, members="nowhere")
    with pytest.raises(ValueError, match=r"^none of the packages of demo is to be had: seldom$"):
        make(gone)
    assert [path.name for path in before.directory.parent.iterdir()] == ["demo"]
    assert DemoCorpus(before.directory).index == before.index


def test_the_names_are_single_words_in_lower_case() -> None:
    words = make().words
    assert words == sorted(words)
    assert {*MONTHS, "france", "africa"} <= set(words)
    assert not any(" " in word or "uk" in word for word in words)


def test_the_index_says_where_each_text_is_from() -> None:
    row = make().index["sources"][0]
    assert row["package"] == dataclasses.asdict(PACKAGE)
    assert row["licence"] == OFTEN.licence
    assert row["characters"] == len((built("demo").directory / "often.txt").read_text())


def test_what_is_not_built_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        ValueError, match=r"demo is not built; first: maskwright-corpus build demo$"
    ):
        built("demo")
    with pytest.raises(ValueError, match=r"^corpus='bible'; one of: demo$"):
        built("bible")
