"""The encoder: how it starts, what it ignores, and what its head reads."""

import functools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.config import PRESETS
from model.encoder import Block, Encoder, n_parameters
from model.feedforward import FEEDFORWARDS
from model.mixers import MIXERS
from tests.conftest import random_encoder
from tests.model.conftest import examples

VOCAB, MAX_TOKENS = 13, 10

every_mixer = pytest.mark.parametrize("mixer", MIXERS)
row_lengths = st.lists(st.integers(1, 8), min_size=1, max_size=4)


@functools.cache
def encoder(mixer: str, *, tied_head: bool = False) -> Encoder:
    """A tiny encoder without any zero weight."""
    made = random_encoder(mixer, vocab_size=VOCAB, max_tokens=MAX_TOKENS, tied_head=tied_head)
    return made.requires_grad_(False)


def fresh(mixer: str, **fields: Any) -> Encoder:
    """A tiny encoder as training finds it."""
    config = PRESETS["tiny"].encoder_config(mixer=mixer, vocab_size=VOCAB)
    torch.manual_seed(0)
    return Encoder(type(config)(**vars(config) | fields))


def random_ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Equal but for float32 rounding: other shapes sum in another order."""
    limit = 1e-6 * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found, expected, rtol=0, atol=limit)


@every_mixer
@examples
@given(lengths=row_lengths, padding=st.integers(0, 2), seed=st.integers(0, 99))
def test_ids_past_a_rows_length_change_no_bit_of_its_hidden_states(
    mixer: str, lengths: list[int], padding: int, seed: int
) -> None:
    ids, given_lengths = random_ids(len(lengths), max(lengths) + padding), torch.tensor(lengths)
    real = torch.arange(ids.shape[1]) < given_lengths[:, None]
    spoilt = torch.where(real, ids, random_ids(*ids.shape, seed=seed))
    hidden = encoder(mixer)(ids, given_lengths)
    assert torch.equal(encoder(mixer)(spoilt, given_lengths)[real], hidden[real])


@every_mixer
@examples
@given(lengths=row_lengths, padding=st.integers(0, 2), seed=st.integers(0, 99))
def test_a_text_gets_the_same_alone_padded_and_beside_others(
    mixer: str, lengths: list[int], padding: int, seed: int
) -> None:
    ids = random_ids(len(lengths), max(lengths) + padding, seed=seed)
    hidden = encoder(mixer)(ids, torch.tensor(lengths))
    for i, length in enumerate(lengths):
        alone = encoder(mixer)(ids[i : i + 1, :length], torch.tensor([length]))
        assert_close(hidden[i, :length], alone[0])


@every_mixer
@pytest.mark.parametrize("activation", FEEDFORWARDS)
def test_a_fresh_block_is_the_identity(mixer: str, activation: str) -> None:
    block = fresh(mixer, activation=activation).blocks[0]
    x = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x, torch.ones(2, 7, dtype=torch.bool)), x)


@every_mixer
def test_a_fresh_encoder_gives_the_normed_embeddings(mixer: str) -> None:
    made, ids = fresh(mixer), random_ids(2, 7)
    expected = made.final_norm(made.embedding(ids))
    assert torch.equal(made(ids, torch.tensor([7, 4])), expected)


@every_mixer
def test_a_block_adds_its_mixer_then_its_feedforward_each_after_a_norm(mixer: str) -> None:
    block = encoder(mixer).blocks[0]
    assert isinstance(block, Block)
    x = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0))
    real = torch.ones(2, 7, dtype=torch.bool)
    expected = x + block.mixer(block.mixer_norm(x), real)
    expected = expected + block.feedforward(block.feedforward_norm(expected))
    assert torch.equal(block(x, real), expected)


@every_mixer
@pytest.mark.parametrize("tied_head", [False, True])
def test_logits_are_those_of_the_asked_positions_only(mixer: str, tied_head: bool) -> None:
    made, ids = encoder(mixer, tied_head=tied_head), random_ids(2, 7)
    hidden = made(ids, torch.tensor([7, 5]))
    everywhere = torch.cartesian_prod(torch.arange(2), torch.arange(7))
    logits = made.logits(hidden, everywhere).view(2, 7, VOCAB)
    asked = torch.tensor([[1, 4], [0, 0], [1, 4]])
    found = made.logits(hidden, asked)
    assert found.shape == (3, VOCAB)
    assert_close(found, logits[asked[:, 0], asked[:, 1]])


def test_no_asked_positions_give_no_logits() -> None:
    made = encoder("mhsa")
    hidden = made(random_ids(1, 4), torch.tensor([4]))
    assert made.logits(hidden, torch.zeros(0, 2, dtype=torch.int64)).shape == (0, VOCAB)


def test_a_tied_head_is_the_embedding_divided_by_the_root_of_the_width() -> None:
    made = encoder("mhsa", tied_head=True)
    hidden = made(random_ids(1, 4), torch.tensor([4]))
    expected = made.embedding.weight @ hidden[0, 2] / 32**0.5 + made.head_bias
    assert_close(made.logits(hidden, torch.tensor([[0, 2]]))[0], expected)


def test_a_tied_head_saves_the_parameters_of_a_head() -> None:
    assert n_parameters(fresh("mhsa")) - n_parameters(fresh("mhsa", tied_head=True)) == VOCAB * 32


@pytest.mark.parametrize("tied_head", [False, True])
def test_the_first_logits_are_of_the_order_of_one(tied_head: bool) -> None:
    made = fresh("mhsa", tied_head=tied_head).requires_grad_(False)
    ids = random_ids(8, 16)
    at = torch.cartesian_prod(torch.arange(8), torch.arange(16))
    logits = made.logits(made(ids, torch.full((8,), 16)), at)
    # Each is a sum of 32 products with a standard deviation of 1; a tied head also sees each
    # token's product with itself, √32.
    assert 0.7 < logits.std() < 2.0


@every_mixer
def test_mixing_weights_are_those_of_every_layer_and_head(mixer: str) -> None:
    made, ids, lengths = encoder(mixer), random_ids(3, 7), torch.tensor([7, 5, 1])
    weights = made.mixing_weights(ids, lengths)
    assert weights.shape == (3, 2, 2, 7, 7)
    real = torch.arange(7) < lengths[:, None]
    x = made.embedding(ids)
    for layer, block in enumerate(made.blocks):
        own = block.mixer.with_weights(block.mixer_norm(x), real)[1]
        assert torch.equal(weights[:, layer], own)
        x = block(x, real)


@every_mixer
def test_dropout_acts_in_training_only(mixer: str) -> None:
    made = random_encoder(mixer, vocab_size=VOCAB, dropout=0.5)
    ids, lengths = random_ids(2, 7), torch.tensor([7, 5])
    torch.manual_seed(0)
    assert torch.equal(made(ids, lengths), made(ids, lengths))
    made.train()
    assert not torch.equal(made(ids, lengths), made(ids, lengths))


@every_mixer
def test_without_dropout_training_computes_what_evaluation_does(mixer: str) -> None:
    made = random_encoder(mixer, vocab_size=VOCAB)
    ids, lengths = random_ids(2, 7), torch.tensor([7, 5])
    assert torch.equal(made(ids, lengths), made.train()(ids, lengths))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"mixer": "mlpp"}, "mixer='mlpp'; one of: mhsa, mlp_mixer"),
        ({"activation": "tanh"}, "activation='tanh'; one of: gelu, relu, relu2, swiglu"),
        ({"token_activation": "tanh"}, "token_activation='tanh'; one of: gelu, relu, relu2"),
    ],
)
def test_an_unknown_name_is_refused_with_the_choices(fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        fresh(**{"mixer": "mlp_mixer"} | fields)


@every_mixer
def test_the_order_of_the_rows_does_not_matter(mixer: str) -> None:
    ids, lengths = random_ids(3, 7), torch.tensor([7, 5, 6])
    hidden = encoder(mixer)(ids, lengths)
    assert_close(encoder(mixer)(ids.flip(0), lengths.flip(0)), hidden.flip(0))


@every_mixer
def test_what_stands_before_differs_from_what_stands_after(mixer: str) -> None:
    ids = torch.tensor([[4, 3, 3, 3, 3], [3, 3, 3, 3, 4]])
    before, after = encoder(mixer)(ids, torch.tensor([5, 5]))[:, 2]
    assert (before - after).abs().max() > 1e-3  # far above rounding
