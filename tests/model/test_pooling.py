"""Poolings: real positions only."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.pooling import POOLINGS
from tests.model.conftest import examples

every_pooling = pytest.mark.parametrize("name", POOLINGS)
row_lengths = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def rows(lengths: list[int], *, padding: int = 0) -> tuple[Tensor, Tensor]:
    """(values, real) of rows of these lengths, all different from zero."""
    n_tokens = max(lengths) + padding
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(lengths), n_tokens, 6, generator=generator) - 1
    return x, torch.arange(n_tokens) < torch.tensor(lengths)[:, None]


@every_pooling
@examples
@given(lengths=row_lengths, garbage=st.sampled_from([-1e9, -3.0, 7.0, 1e9]))
def test_what_stands_at_padding_changes_nothing(
    name: str, lengths: list[int], garbage: float
) -> None:
    x, real = rows(lengths, padding=2)
    spoilt = torch.where(real[:, :, None], x, garbage)
    assert torch.equal(POOLINGS[name](spoilt, real), POOLINGS[name](x, real))


@every_pooling
@examples
@given(lengths=row_lengths, padding=st.integers(0, 5))
def test_a_row_is_pooled_as_if_alone(name: str, lengths: list[int], padding: int) -> None:
    x, real = rows(lengths, padding=padding)
    pooled = POOLINGS[name](x, real)
    for i, length in enumerate(lengths):
        alone = POOLINGS[name](x[i : i + 1, :length], real[i : i + 1, :length])
        torch.testing.assert_close(pooled[i], alone[0], rtol=1e-6, atol=1e-6)  # order of sums


@every_pooling
def test_a_row_of_nothing_but_padding_becomes_zeros(name: str) -> None:
    x, real = rows([3, 5])
    real[0] = False
    pooled = POOLINGS[name](x, real)
    assert not pooled[0].any()
    assert pooled[1].all()


def test_mean_is_the_mean_of_the_real_positions() -> None:
    x, real = rows([3, 5])
    # 1e-6: rounding
    torch.testing.assert_close(
        POOLINGS["mean"](x, real)[0], x[0, :3].mean(dim=0), rtol=1e-6, atol=1e-6
    )


def test_first_is_the_first_position() -> None:
    x, real = rows([3, 5])
    assert torch.equal(POOLINGS["first"](x, real), x[:, 0])


def test_max_is_the_largest_of_the_real_positions_even_if_negative() -> None:
    x, real = rows([3, 5])
    x = -x.abs()
    assert torch.equal(POOLINGS["max"](x, real)[0], x[0, :3].amax(dim=0))
