"""The MLP sublayer: one position at a time, in the form that its name says."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import EncoderConfig
from model.feedforward import ACTIVATIONS, FEEDFORWARDS, SwiGLU
from tests.conftest import random_encoder

every_feedforward = pytest.mark.parametrize("name", FEEDFORWARDS)


def feedforward(name: str, **fields: Any) -> nn.Module:
    """The sublayer of a tiny encoder without any zero weight."""
    encoder = random_encoder("mhsa", vocab_size=5, activation=name, **fields)
    return encoder.blocks[0].feedforward


def stream(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@every_feedforward
def test_changing_one_position_changes_only_that_position(name: str) -> None:
    layer, x = feedforward(name), stream(2, 5, 32)
    changed = x.clone()
    changed[1, 3] += 1
    differs = (layer(changed) != layer(x)).any(dim=2)
    assert differs.nonzero().tolist() == [[1, 3]]


@every_feedforward
def test_a_position_gets_the_same_alone(name: str) -> None:
    layer, x = feedforward(name), stream(2, 5, 32)
    # Other shapes sum in another order: some roundings of outputs of order 10.
    torch.testing.assert_close(layer(x[1, 3]), layer(x)[1, 3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_plain_feedforward_is_two_maps_around_its_activation(name: str) -> None:
    layer, x = feedforward(name), stream(3, 32)
    act = {
        "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / 2**0.5)),
        "relu": lambda z: z.clamp(min=0),
        "relu2": lambda z: z.clamp(min=0) ** 2,
    }[name]
    expected = act(x @ layer.up.weight.T) @ layer.down.weight.T
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)  # rounding


def test_swiglu_is_down_of_silu_of_gate_times_up() -> None:
    layer, x = feedforward("swiglu"), stream(3, 32)
    assert isinstance(layer, SwiGLU)
    gate, up = x @ layer.gate.weight.T, x @ layer.up.weight.T
    expected = (functional.sigmoid(gate) * gate * up) @ layer.down.weight.T
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)  # rounding


def n_numbers(name: str, d_model: int) -> int:
    config = EncoderConfig(
        mixer="mhsa",
        vocab_size=5,
        max_tokens=8,
        d_model=d_model,
        n_layers=1,
        n_heads=2,
        activation=name,
    )
    return sum(parameter.numel() for parameter in FEEDFORWARDS[name](config).parameters())


@every_feedforward
def test_by_default_every_feedforward_has_as_many_parameters(name: str) -> None:
    assert n_numbers(name, 96) == 2 * 4 * 96 * 96


@every_feedforward
def test_a_stated_width_is_the_width(name: str) -> None:
    assert feedforward(name, d_ff=24).up.weight.shape == (24, 32)
