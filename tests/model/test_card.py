"""The card of a run: what was trained, on what, and how well."""

from typing import Any

import pytest

from model.card import run_card, training_rows
from model.config import Recipe, to_json
from tests.conftest import random_encoder


def summary(mixer: str = "mhsa", **fields: object) -> dict[str, Any]:
    made = {
        "config": to_json(random_encoder(mixer, vocab_size=30).config),
        "recipe": to_json(Recipe()),
        "corpus": {"name": "plays", "sha256": "ab" * 32, "licence": "public domain"},
        "n_parameters": 1234,
        "step": 7,
        "cost": {"cpu_seconds": 61.4},
        "held_out": {"loss": 1.5, "accuracy": 0.5, "length": 32, "draws": 4},
    }
    return made | fields


@pytest.mark.parametrize(
    ("mixer", "said"), [("mhsa", "multi-head self-attention"), ("mlp_mixer", "MLP-Mixer")]
)
def test_a_card_begins_with_the_name_and_the_mixer(mixer: str, said: str) -> None:
    title, _, sentence, *_ = run_card(summary(mixer), name="mine").splitlines()
    assert title == "# mine"
    assert said in sentence


def test_a_card_says_what_was_trained_on_what() -> None:
    card = run_card(summary(), name="mine")
    for row in (
        "| vocabulary | char, 30 ids |",
        "| parameters | 1,234 |",
        "| corpus | plays, sha256 abababababab… |",
        "| cost | 61 CPU-seconds |",
        "| licence of the text | public domain |",
    ):
        assert row in card.splitlines()
    assert "1.5000 nats, top-1 0.5000 (windows of 32, 15 % masked, 4 draws)" in card


def test_a_card_says_whose_words_it_began_with_and_what_all_runs_before_cost() -> None:
    first = {"step": 2400, "cost": {"cpu_seconds": 7000.2}}
    embed = {
        "teacher": {"name": "minilm"},
        "first_stage": {"step": 500, "cost": {"cpu_seconds": 1000.0}, "first_stage": first},
    }
    card = run_card(summary(source={"words": "minilm"}, embed=embed), name="mine")
    assert "| words | the embedding began as that of minilm |" in card
    assert "from minilm; 2,900 steps went before |" in card
    assert "| cost | 61 CPU-seconds, after 8,000 of the runs before |" in card


def test_a_card_shows_the_last_sample_only() -> None:
    samples = [(1, "old"), (7, "to [b]e")]
    card = run_card(summary(), name="mine", samples=samples)
    assert "```\nto [b]e\n```" in card
    assert "old" not in card
    assert "```" not in run_card(summary(), name="mine")


@pytest.mark.parametrize(("missing", "word"), [("cost", "cost"), ("held_out", "held-out")])
def test_what_was_not_measured_has_no_row(missing: str, word: str) -> None:
    fields = summary()
    assert any(row.startswith(f"| {word}") for row in training_rows(fields))
    del fields[missing]
    assert not any(row.startswith(f"| {word}") for row in training_rows(fields))


def test_an_encoder_without_a_training_has_one_row_that_says_so() -> None:
    assert training_rows({}) == ["| training | none |"]


def test_a_card_of_the_second_stage_says_from_whom_it_learnt_and_what_went_before() -> None:
    embed = {"teacher": {"name": "minilm"}, "pairs": {"name": "p.tsv"}, "first_stage": {"step": 90}}
    assert (
        "| stage | the second, for vectors of sentences, from minilm and p.tsv; "
        "90 steps went before |"
    ) in training_rows(summary(embed=embed))
    assert not any("stage" in row for row in training_rows(summary()))
