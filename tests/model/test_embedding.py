"""The second stage's loss: its batches, its gradients, what it says of itself."""

from typing import Any

import numpy as np
import pytest
import torch

from model.distil import nearest, rows_of
from model.embedding import EmbedRecipe, Lesson, SentenceLoss
from model.encoder import Encoder
from model.pairs import Pairs
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder

SENTENCES = [f"{'to be ' * (i % 5)}or not {'to be ' * (i % 3)}in the mind" for i in range(40)]


def lesson() -> Lesson:
    vectors = np.random.default_rng(0).normal(size=(40, 24)).astype(np.float16)
    return Lesson(SENTENCES, vectors, {"teacher": {"name": "x"}})


def pairs(*, scored: bool) -> Pairs:
    scores = np.linspace(0, 1, 20, dtype=np.float32) if scored else None
    return Pairs("p.tsv", "0" * 64, SENTENCES[:20], SENTENCES[20:], scores)


def made(tokenizer: Tokenizer, encoder: Encoder, *, seed: int = 0, **parts: Any) -> SentenceLoss:
    recipe = EmbedRecipe(batch_sentences=8, weight=parts.pop("weight", 1.0))
    return SentenceLoss(recipe, encoder=encoder, tokenizer=tokenizer, seed=seed, **parts)


def gradients(loss: SentenceLoss, encoder: Encoder, step: int) -> tuple[float, torch.Tensor]:
    encoder.zero_grad()
    value = loss.gradients(encoder, step)
    return value, encoder.embedding.weight.grad.clone()


every_lesson = pytest.mark.parametrize(
    "parts",
    [
        {"lesson": lesson()},
        {"pairs": pairs(scored=False)},
        {"pairs": pairs(scored=True)},
        {"lesson": lesson(), "pairs": pairs(scored=True)},
    ],
)


@pytest.fixture
def tokenizer(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["wordpiece"]


@every_lesson
def test_a_batch_is_a_function_of_seed_and_step(tokenizer: Tokenizer, parts: Any) -> None:
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    one, other = (made(tokenizer, encoder, **parts) for _ in range(2))
    gradients(one, encoder, 0)
    value, gradient = gradients(one, encoder, 1)
    again, same = gradients(other, encoder, 1)
    assert (value, gradient.tolist()) == (again, same.tolist())
    assert value != gradients(one, encoder, 2)[0]
    assert value != gradients(made(tokenizer, encoder, seed=1, **parts), encoder, 1)[0]


@every_lesson
def test_going_down_the_gradient_lowers_the_loss(tokenizer: Tokenizer, parts: Any) -> None:
    encoder = random_encoder("mlp_mixer", vocab_size=tokenizer.vocab_size)
    loss = made(tokenizer, encoder, **parts)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    before = loss.gradients(encoder, 0)
    for _ in range(20):
        optimizer.step()
        optimizer.zero_grad()
        after = loss.gradients(encoder, 0)
    assert after < 0.8 * before


def test_half_of_a_batch_of_the_teachers_is_likest_to_the_other_half(tokenizer: Tokenizer) -> None:
    texts = [f"it is {a} {b}" for a in "abcdefghij" for b in "abcd"]
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    rows = rows_of(texts, tokenizer, max_tokens=encoder.config.max_tokens)
    seen: list[int] = []

    def look(module: Encoder, given: tuple[torch.Tensor, torch.Tensor]) -> None:
        ids, lengths = given
        seen.extend(rows.index(row[:n]) for row, n in zip(ids.tolist(), lengths, strict=True))

    encoder.register_forward_pre_hook(look)
    taught = Lesson(texts, lesson().vectors, {})
    made(tokenizer, encoder, lesson=taught).gradients(encoder, 0)
    likest = nearest(taught.vectors)
    assert len(seen) == 8
    assert all(likest[i] in seen or i in likest[seen] for i in seen)


def test_the_weight_scales_the_gradient_and_not_the_loss(tokenizer: Tokenizer) -> None:
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    one, four = (
        gradients(made(tokenizer, encoder, lesson=lesson(), weight=weight), encoder, 0)
        for weight in (1.0, 4.0)
    )
    assert one[0] == four[0]
    torch.testing.assert_close(4 * one[1], four[1])


def test_it_says_what_decides_it(tokenizer: Tokenizer) -> None:
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    loss = made(
        tokenizer,
        encoder,
        lesson=lesson(),
        pairs=pairs(scored=True),
        first_stage={"step": 7},
    )
    assert loss.summary() == {
        "n_sentences": 100_000,
        "batch_sentences": 8,
        "weight": 1.0,
        "teacher": {"name": "x"},
        "pairs": {"name": "p.tsv", "sha256": "0" * 64, "n": 20, "scored": True},
        "first_stage": {"step": 7},
    }


def test_nothing_to_learn_from_is_refused_with_the_choices(tokenizer: Tokenizer) -> None:
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    with pytest.raises(ValueError, match="learns from --teacher, from --pairs, or from both"):
        made(tokenizer, encoder)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"weight": 0.0}, "weight=0.0; above 0"),
        ({"batch_sentences": 2}, "batch_sentences=2; at least 4"),
        ({"n_sentences": 0}, "n_sentences=0; at least 4"),
    ],
)
def test_a_recipe_that_cannot_run_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EmbedRecipe(**fields)
