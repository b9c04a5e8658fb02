"""Lines made plain, cut, told apart and split."""

import pytest

from model.cleaning import (
    HELD_OUT_ONE_IN,
    clean,
    is_held_out,
    likeness,
    paragraphs,
    pieces,
    sentence,
)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("cafe\u0301", "caf\u00e9"),
        ("a\u00a0b\u2003 c\td", "a b c d"),
        ("so\u00adft\u200b \ufeffend", "soft end"),
        ("\u201cIt\u2019s\u201d\u2026", '"It\'s"...'),
        ("Paris (; ) is a city [ ].", "Paris is a city."),
        ("( French: Paris ) is here .", "(French: Paris) is here."),
        ("keep 3.5 % and -1 : 2", "keep 3.5 % and -1: 2"),
    ],
)
def test_a_line_is_made_plain(raw: str, plain: str) -> None:
    assert clean(raw) == plain


def test_wrapped_lines_are_joined_and_blank_ones_part_paragraphs() -> None:
    found = [clean(part) for part in paragraphs("one\r\ntwo\r\n \r\nthree\n")]
    assert found == ["one two", "three"]


def test_pieces_are_whole_sentences_of_about_a_length() -> None:
    text = "It is so. Is it? Dr. No says 3.5 is more! He left."
    assert list(pieces(text, n_characters=20)) == [
        "It is so. Is it? Dr.",
        "No says 3.5 is more!",
        "He left.",
    ]
    assert " ".join(pieces(text, n_characters=12)) == text
    assert list(pieces("", n_characters=5)) == []


def test_a_phrase_becomes_a_sentence() -> None:
    assert sentence(" most people live here;") == "Most people live here."
    assert sentence("Really?") == "Really?"
    assert sentence(" ") == ""


def test_lines_that_differ_in_case_and_punctuation_only_are_alike() -> None:
    assert likeness("The End, at last!") == likeness("the  end at last")
    assert likeness("The end at last") != likeness("The end at least")


def test_one_line_in_fifty_is_held_out_and_always_the_same() -> None:
    lines = [f"line {i}" for i in range(20_000)]
    held_out = [line for line in lines if is_held_out(line)]
    assert abs(len(held_out) - len(lines) / HELD_OUT_ONE_IN) < 60  # three standard deviations
    assert held_out[:2] == ["line 57", "line 101"]
