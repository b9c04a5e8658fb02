"""Filled-in masks, as a reader sees them, and the card that shows them."""

import pytest
import torch

from model.card import run_card
from model.config import Recipe, to_json
from model.samples import filled
from model.tokenizer import TRAINERS, Tokenizer
from tests.conftest import random_encoder


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_sample_is_the_text_with_its_guesses_marked(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    text = "to be or not to be that is the question whether it is nobler in the mind"
    ids = tokenizer.encode_corpus(text)[:30]
    text = "".join(tokenizer.token_str(int(i)) for i in ids).replace("##", "")
    # A head that always says one token: right where that stood, wrong elsewhere.
    always = int(ids[1])
    torch.nn.init.zeros_(encoder.head.weight)
    torch.nn.init.zeros_(encoder.head_bias)
    with torch.no_grad():
        encoder.head_bias[always] = 1.0
    said = tokenizer.token_str(always)
    shown = filled(encoder, ids, tokenizer=tokenizer)
    assert f"[{said}|" in shown
    plain = shown.replace(f"[{said}|", "").replace(f"[{said}]", said).replace("]", "")
    assert plain.replace("##", "").replace(" ", "") == text.replace(" ", "")


def test_a_card_says_what_was_trained_on_what_and_shows_the_last_sample() -> None:
    encoder = random_encoder("mlp_mixer", vocab_size=30)
    summary = {
        "config": to_json(encoder.config),
        "recipe": to_json(Recipe()),
        "corpus": {"name": "plays", "sha256": "ab" * 32, "licence": "public domain"},
        "n_parameters": 1234,
        "step": 7,
        "cost": {"cpu_seconds": 61.4},
        "held_out": {"loss": 1.5, "accuracy": 0.5, "length": 32, "draws": 4},
    }
    card = run_card(summary, name="mine", samples=[(1, "old"), (7, "to [b]e")])
    assert card.startswith("# mine\n")
    for said in ("MLP-Mixer", "1,234", "plays", "61 CPU-seconds", "1.5000 nats", "to [b]e"):
        assert said in card
    assert "old" not in card
