"""How the members of each package become lines."""

import json

import pytest

from model.readers import READERS
from model.sources import MIXES, NAMES


def read(reader: str, *members: str, name: str = "x") -> list[str]:
    return list(READERS[reader]({f"{name}{i}": m.encode() for i, m in enumerate(members)}))


def test_every_source_of_the_table_has_a_reader() -> None:
    assert {source.reader for mix in (*MIXES.values(), NAMES) for source in mix} == READERS.keys()


def test_no_two_sources_of_a_mix_share_a_name() -> None:
    for mix in MIXES.values():
        assert len({source.name for source in mix}) == len(mix)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1492 - The crew sails.", "In 1492, the crew sails."),
        ("1895 - In Saint Petersburg, Popov speaks", "In 1895, in Saint Petersburg, Popov speaks."),
        ("44 BC - Caesar dies.", "In 44 BC, Caesar dies."),
        ("1814 - War of 1812: It begins.", "In 1814, War of 1812: It begins."),
    ],
)
def test_an_event_is_one_sentence_with_its_year(line: str, said: str) -> None:
    assert read("events", line + "\nno year here\n") == [said]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "1984 - Birthday of Ann Loops, South African singer",
            "Ann Loops, a South African singer, was born in 1984.",
        ),
        (
            "1560 - Birthday of Jacobus, Dutch theologian (d. 1609)",
            "Jacobus, a Dutch theologian, was born in 1560 and died in 1609.",
        ),
        (
            "1609 - Death of Jacobus, Dutch theologian (b. 1560)",
            "Jacobus, a Dutch theologian, was born in 1560 and died in 1609.",
        ),
        ("1956 - Birthday of Bob, American actor", "Bob, an American actor, was born in 1956."),
        (
            "1486 - Birthday of Charles III, Duke of Savoy",
            "Charles III, Duke of Savoy, was born in 1486.",
        ),
        ("1359 - Death of Hugh IV of Cyprus", "Hugh IV of Cyprus died in 1359."),
    ],
)
def test_a_life_is_told_without_a_tense_for_the_living(line: str, said: str) -> None:
    assert read("lives", line) == [said]


def test_the_gloss_of_a_word_is_a_sentence_and_so_are_its_examples() -> None:
    licence = "  1 This software is free | of charge  \n"
    noun = (
        "01 04 n 02 sorceress 0 hag 1 001 @ 02 n 0000 | a woman sorcerer; "
        '"the sorceress laughed at us"  '
    )
    verb = "02 31 v 01 learn 0 001 @ 03 v 0000 01 + 02 00 | gain knowledge  "
    members = {"w/data.noun": (licence + noun).encode(), "w/data.verb": verb.encode()}
    assert list(READERS["wordnet"](members)) == [
        "A sorceress or hag is a woman sorcerer.",
        "The sorceress laughed at us.",
        "To learn means to gain knowledge.",
    ]


def test_articles_give_their_paragraphs_and_recipes_their_steps() -> None:
    assert read("wiki", json.dumps({"A": {"extract": "One.\nTwo."}})) == ["One.", "Two."]
    steps = {"R": {"steps": ["* Mix it.", "", "serve"]}}
    assert read("recipes", json.dumps(steps)) == ["Mix it. Serve."]


def test_crude_facts_are_left_out() -> None:
    assert read("facts", "bananas grow\nHe was murdered\n") == ["Bananas grow."]


def test_books_give_their_paragraphs_without_headings_and_verse_nothing() -> None:
    book = "[Emma by Jane Austen 1816]\n\nVOLUME I\n\nCHAPTER I\n\nEmma, _handsome_,\nand clever.\n"
    assert read("gutenberg", book, name="austen") == ["Emma, handsome,\nand clever."]
    assert read("gutenberg", book, name="milton") == []


def test_addresses_begin_in_1945_and_are_cut_between_sentences() -> None:
    speech = "Thank you. [Applause] " + "We can do it. " * 60
    lines = read("addresses", speech, name="1965_x")
    assert len(lines) == 2
    assert all(line.endswith("We can do it.") and "pplause" not in line for line in lines)
    assert read("addresses", speech, name="1944_x") == []
