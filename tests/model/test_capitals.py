"""Capitals: scores known by hand, and the files that hold them."""

import json
from pathlib import Path

import pytest

from model.capitals import capitals, capitals_of
from tests.model.knowing import knowing, lines, tokenizer_of

OF = {"France": ["Paris"], "Peru": ["Lima"], "Bolivia": ["Sucre", "Lapaz"], "Mali": ["Bamako"]}
WORDS = "the capital of is . france peru bolivia mali paris lima sucre lapaz"


def test_ranks_are_among_all_tokens_and_of_several_capitals_the_likeliest_counts() -> None:
    known = [
        "the capital of france is paris .",
        "the capital of peru is paris .",
        "the capital of peru is lima .",
        "the capital of bolivia is paris .",
        "the capital of bolivia is lapaz .",
    ]
    found = capitals(knowing(tokenizer_of(WORDS), known), OF)
    assert found.ranks == {"France": 1, "Peru": 2, "Bolivia": 2}
    assert (found.top1, found.top5) == (pytest.approx(1 / 3), 1)
    assert found.n_several_tokens == 1


@pytest.mark.parametrize(("n_before", "top5"), [(4, 1), (5, 0)])
def test_the_first_five_are_five(n_before: int, top5: int) -> None:
    guesses = [*["paris", "sucre", "lapaz", "peru", "mali"][:n_before], "lima"]
    known = [f"the capital of peru is {guess} ." for guess in guesses]
    found = capitals(knowing(tokenizer_of(WORDS), known), {"Peru": ["Lima"]})
    assert (found.ranks["Peru"], found.top5) == (n_before + 1, top5)


def test_one_that_knows_nothing_has_none_among_the_first() -> None:
    found = capitals(knowing(tokenizer_of(WORDS), []), {"Peru": ["Lima"]})
    assert (found.top1, found.top5) == (0, 0)


def test_capitals_that_are_all_of_several_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="no capital of 1 countries is a single token"):
        capitals(knowing(tokenizer_of(WORDS), []), {"Mali": ["Bamako"]})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.tsv", lines(["Peru", "Lima"], "", ["Bolivia", "Sucre"], ["Bolivia ", "La Paz"])),
        ("c.json", json.dumps({"Peru": "Lima", "Bolivia": ["Sucre", "La Paz"]})),
    ],
)
def test_countries_are_read_from_tabs_and_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert capitals_of(tmp_path / name) == {"Peru": ["Lima"], "Bolivia": ["Sucre", "La Paz"]}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("c.tsv", "Peru\tLima\nMali Bamako", "line 2 is no country and its capital with one tab"),
        ("c.tsv", "Peru\tLima\tthe", "line 1 is no country and its capital with one tab"),
        ("c.tsv", "Peru\t ", "line 1 is no country and its capital with one tab"),
        ("c.tsv", "\n", "names no country"),
        ("c.json", "{}", "names no country"),
        ("c.json", "{", "c.json is no JSON"),
        ("c.json", "[]", "is no JSON object from countries to capitals"),
        ("c.json", '{"Peru": [""]}', "'Peru' has neither a capital nor an array of some"),
        ("c.json", '{"Peru": 3}', "'Peru' has neither a capital nor an array of some"),
    ],
)
def test_a_file_without_capitals_is_refused(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=sentence):
        capitals_of(tmp_path / name)
