"""Sentences and names from files of the World Factbook."""

import json
from typing import Any

import pytest

from model.factbook import countries, lowered, prose
from model.places import names, sentences


def text(**fields: Any) -> dict[str, Any]:
    return {name.replace("_", " "): {"text": value} for name, value in fields.items()}


def file(name: str, **more: Any) -> bytes:
    tree = {
        "Government": {
            "Country name": text(conventional_short_form=name, conventional_long_form="none")
        }
    }
    for path, value in more.items():
        part, _, field = path.partition("__")
        tree.setdefault(part.replace("_", " "), {})[field.replace("_", " ")] = value
    return json.dumps(tree).encode()


FRANCE = file(
    "France",
    Government__Capital=text(name="Paris"),
    Geography__Land_boundaries=text(border_countries="Spain 646 km; Netherlands 10.2 km"),
    People_and_Society__Nationality=text(
        noun="Frenchman(men), Frenchwoman(women)", adjective="French"
    ),
    People_and_Society__Languages={"text": "French (official) 100%, Breton, Catalan (2020 est.)"},
    Introduction__Background={"text": "<p>General Charles GAULLE led the UN&rsquo;s ally.</p>"},
    Geography__Climate={"text": "cool winters; mild summers (2020 est.)"},
)
NETHERLANDS = file(
    "Netherlands",
    Government__Capital=text(name="Amsterdam (the seat is The Hague); note - it is old"),
    People_and_Society__Nationality=text(noun="Dutchman(men)", adjective="Dutch"),
)
MEMBERS = {"data/europe/fr.json": FRANCE, "data/europe/nl.json": NETHERLANDS}


@pytest.mark.parametrize(
    "sentence",
    [
        "The capital of France is Paris.",
        "Paris is the capital city of France.",
        "The French capital is Paris.",
        "France is located in Europe.",
        "The official language of France is French.",
        "Breton is spoken in France.",
        "France borders Spain.",
        "France shares a border with the Netherlands.",
        "People from France are called Frenchmen.",
        "The Netherlands has its capital in Amsterdam.",
        "A citizen of the Netherlands is Dutch.",
    ],
)
def test_a_fact_is_a_plain_sentence(sentence: str) -> None:
    assert sentence in list(sentences(MEMBERS))


def test_no_sentence_tells_of_what_the_fields_do_not_say() -> None:
    bare = list(sentences({"data/antarctica/bv.json": file("Bouvet Island")}))
    assert bare == []


def test_prose_has_capitals_stops_no_markup_and_plain_surnames() -> None:
    lines = list(prose(MEMBERS))
    assert "General Charles Gaulle led the UN\u2019s ally." in lines
    assert "The climate of France is cool winters; mild summers." in lines


def test_acronyms_keep_their_capitals() -> None:
    acronyms = frozenset({"UNITA"})
    assert lowered("LOURENCO of UNITA met KIM Jong Un and the EU", acronyms) == (
        "Lourenco of UNITA met Kim Jong Un and the EU"
    )


def test_the_names_are_those_of_places_people_languages_and_months() -> None:
    found = set(names(MEMBERS))
    assert {"France", "Paris", "French", "Amsterdam", "Dutch", "Frenchman", "january"} <= found
    assert "Breton" not in found  # spoken, but not official


def test_a_country_without_a_short_name_has_its_long_one() -> None:
    tree = {
        "Government": {
            "Country name": text(
                conventional_short_form="none", conventional_long_form="United Arab Emirates"
            )
        }
    }
    (country,) = countries({"data/middle-east/ae.json": json.dumps(tree).encode()})
    assert (country.name, country.country) == ("United Arab Emirates", "the United Arab Emirates")
