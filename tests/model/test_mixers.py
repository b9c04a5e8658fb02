"""Token mixers: invariance to padding and neighbours for each, and what each computes."""

import copy
import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.feedforward import ACTIVATIONS
from model.mixers import (
    MIXERS,
    Mixer,
    RotaryPositions,
    SelfAttention,
    TokenMLP,
    fused_attention,
    local_weights,
)
from tests.conftest import random_encoder
from tests.model.conftest import examples

MAX_TOKENS, D_MODEL, N_HEADS = 10, 16, 2

every_mixer = pytest.mark.parametrize("name", MIXERS)
every_token_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
row_lengths = st.lists(st.integers(1, 8), min_size=1, max_size=4)
n_padding = st.integers(0, 2)
seeds = st.integers(0, 99)


@functools.cache
def mixer(name: str, *, token_activation: str = "relu2") -> Mixer:
    """A mixer without any zero weight; its output and its hidden values are of order 1."""
    encoder = random_encoder(
        name,
        vocab_size=5,
        max_tokens=MAX_TOKENS,
        d_model=D_MODEL,
        n_heads=N_HEADS,
        token_activation=token_activation,
    )
    return encoder.blocks[0].mixer.requires_grad_(False)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows(lengths: list[int], *, padding: int = 0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(stream, real) of rows of these lengths, `padding` longer than the longest."""
    n_tokens = max(lengths) + padding
    real = torch.arange(n_tokens) < torch.tensor(lengths)[:, None]
    return normal(len(lengths), n_tokens, D_MODEL, seed=seed), real


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Equal but for float32 rounding: other shapes sum in another order."""
    limit = 1e-6 * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found, expected, rtol=0, atol=limit)


@every_mixer
@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds, scale=st.sampled_from([1.0, 1e3, 1e6]))
def test_what_stands_at_padding_changes_no_bit_at_real_positions(
    name: str, lengths: list[int], padding: int, seed: int, scale: float
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    spoilt = torch.where(real[:, :, None], x, scale * normal(*x.shape, seed=seed + 1))
    assert torch.equal(mixer(name)(spoilt, real)[real], mixer(name)(x, real)[real])


@every_mixer
@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds)
def test_a_row_is_mixed_in_a_batch_as_it_is_alone(
    name: str, lengths: list[int], padding: int, seed: int
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    mixed = mixer(name)(x, real)
    for i, length in enumerate(lengths):
        alone = mixer(name)(x[i : i + 1, :length], real[i : i + 1, :length])
        assert_close(mixed[i, :length], alone[0])


@every_mixer
@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds)
def test_other_neighbours_of_the_same_shape_change_nothing(
    name: str, lengths: list[int], padding: int, seed: int
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    others = torch.cat([x[:1], normal(*x[1:].shape, seed=seed + 1)])
    assert_close(mixer(name)(others, real)[real][: lengths[0]], mixer(name)(x, real)[0, real[0]])


@every_mixer
def test_mixing_lets_every_real_position_see_every_other(name: str) -> None:
    x, real = rows([6], padding=2)
    for seen in range(6):
        changed = x.clone()
        changed[0, seen] += 1
        differs = (mixer(name)(changed, real) != mixer(name)(x, real)).any(dim=2)
        assert differs[real].all()


@every_mixer
def test_a_row_of_nothing_but_padding_is_finite_and_spoils_no_other(name: str) -> None:
    x, real = rows([6, 6])
    real[0] = False
    mixed, weights = mixer(name).with_weights(x, real)
    assert mixed.isfinite().all()
    assert not weights[0].any()
    assert_close(mixed[1:], mixer(name)(x[1:], real[1:]))


@every_mixer
@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds)
def test_asking_for_the_weights_does_not_change_the_output(
    name: str, lengths: list[int], padding: int, seed: int
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    assert torch.equal(mixer(name).with_weights(x, real)[0][real], mixer(name)(x, real)[real])


@every_mixer
@examples
@given(lengths=row_lengths, seed=seeds)
def test_rows_without_padding_need_not_say_so(name: str, lengths: list[int], seed: int) -> None:
    x, real = rows([max(lengths)] * len(lengths), padding=0, seed=seed)
    assert real.all()
    assert torch.equal(mixer(name)(x), mixer(name)(x, real))


@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds)
def test_the_fused_kernel_says_what_the_written_out_attention_says(
    lengths: list[int], padding: int, seed: int
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    attention = mixer("mhsa")
    fused = attention._joined(fused_attention(*attention._heads(x), real))
    # float32 rounding, in another order of sums
    torch.testing.assert_close(fused[real], attention(x, real)[real], rtol=1e-4, atol=1e-5)


@every_mixer
@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds)
def test_weights_to_and_from_padding_are_exactly_zero(
    name: str, lengths: list[int], padding: int, seed: int
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    _, weights = mixer(name).with_weights(x, real)
    assert weights.shape == (len(lengths), N_HEADS, *[x.shape[1]] * 2)
    assert not weights.masked_select(~real[:, None, None, :]).any()
    assert not weights.masked_select(~real[:, None, :, None]).any()


@every_mixer
def test_the_weights_of_a_row_do_not_depend_on_its_neighbours(name: str) -> None:
    x, real = rows([4, 7])
    _, weights = mixer(name).with_weights(x, real)
    _, alone = mixer(name).with_weights(x[:1, :4], real[:1, :4])
    assert_close(weights[:1, :, :4, :4], alone)


@every_mixer
def test_a_row_longer_than_the_mixer_takes_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError):
        mixer(name)(*rows([MAX_TOKENS + 1]))


@pytest.mark.parametrize("name", [name for name in MIXERS if MIXERS[name].kind == "attention"])
@examples
@given(lengths=row_lengths, padding=n_padding, seed=seeds)
def test_attention_weights_are_shares_of_the_real_positions(
    name: str, lengths: list[int], padding: int, seed: int
) -> None:
    x, real = rows(lengths, padding=padding, seed=seed)
    _, weights = mixer(name).with_weights(x, real)
    assert (weights >= 0).all()
    sums = weights.sum(dim=3).transpose(1, 2)[real]
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)  # rounding


def test_a_lone_position_attends_to_itself_alone_however_low_its_score() -> None:
    layer = copy.deepcopy(mixer("mhsa"))
    assert isinstance(layer, SelfAttention)
    layer.key.weight.copy_(-layer.query.weight)  # scores are minus a square
    x, real = rows([1], padding=5)
    _, weights = layer.with_weights(30 * x, real)
    assert (weights[0, :, 0, 0] == 1).all()


def rotated(x_TK: Tensor) -> Tensor:
    """Each pair of features (i, i + K/2) turned by position · 1000^(-2i/K), one by one."""
    turned, half = x_TK.clone(), x_TK.shape[1] // 2
    for t in range(x_TK.shape[0]):
        for i in range(half):
            angle = t * 1000.0 ** (-2 * i / x_TK.shape[1])
            a, b = x_TK[t, i].item(), x_TK[t, i + half].item()
            turned[t, i] = a * math.cos(angle) - b * math.sin(angle)
            turned[t, i + half] = a * math.sin(angle) + b * math.cos(angle)
    return turned


def test_combined_projections_equal_a_separate_matrix_for_each_head() -> None:
    layer = mixer("mhsa")
    assert isinstance(layer, SelfAttention)
    x, real = rows([5, 7])
    mixed, weights = layer.with_weights(x, real)
    d_head = D_MODEL // N_HEADS
    for b, length in enumerate([5, 7]):
        x_TD, heads = x[b, :length], []
        for h in range(N_HEADS):
            own = slice(h * d_head, (h + 1) * d_head)
            w_query, w_key = layer.query.weight[own].T, layer.key.weight[own].T
            scores = rotated(x_TD @ w_query) @ rotated(x_TD @ w_key).T / d_head**0.5
            shares = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
            assert_close(weights[b, h, :length, :length], shares)
            heads.append(shares @ (x_TD @ layer.value.weight[own].T))
        expected = torch.cat(heads, dim=1) @ layer.output.weight.T
        assert_close(mixed[b, :length], expected)


def test_scores_of_rotated_vectors_depend_on_their_distance_only() -> None:
    rotate = RotaryPositions(d_head=8, max_tokens=12, base=1000.0)
    query, key = normal(8, seed=0), normal(8, seed=1)
    q_TK, k_TK = (rotate(v.expand(1, 1, 12, 8))[0, 0] for v in (query, key))
    scores = q_TK @ k_TK.T
    assert_close(scores[1:, 1:], scores[:-1, :-1])
    assert scores[0].diff().abs().min() > 1e-3  # and on their distance they do depend


def test_rotation_keeps_lengths_and_leaves_the_first_position_alone() -> None:
    rotate, x = RotaryPositions(d_head=8, max_tokens=12, base=1000.0), normal(2, 3, 12, 8, seed=0)
    assert torch.equal(rotate(x)[:, :, 0], x[:, :, 0])
    assert_close(rotate(x).norm(dim=3), x.norm(dim=3))


@every_token_activation
@examples
@given(length=st.integers(1, 6), padding=n_padding, seed=seeds)
def test_token_mixing_weights_are_the_mean_jacobian_of_each_group(
    activation: str, length: int, padding: int, seed: int
) -> None:
    layer = mixer("mlp_mixer", token_activation=activation)
    x, real = rows([length], padding=padding, seed=seed)
    _, weights = layer.with_weights(x, real)

    def alone(x_TD: Tensor) -> Tensor:
        return layer(x_TD[None], real)[0, :length]

    jacobian_TDTD = torch.autograd.functional.jacobian(alone, x[0])[:, :, :length]
    own_TTD = jacobian_TDTD.diagonal(dim1=1, dim2=3)
    # No feature sees another: the map of a feature is all there is.
    assert torch.equal(jacobian_TDTD, torch.diag_embed(own_TTD, dim1=1, dim2=3))
    expected = own_TTD.unflatten(2, (N_HEADS, -1)).mean(dim=3).permute(2, 0, 1)
    assert_close(weights[0, :, :length, :length], expected)


@every_token_activation
def test_the_token_mlp_is_two_maps_over_positions_for_each_feature(activation: str) -> None:
    layer = mixer("mlp_mixer", token_activation=activation)
    assert isinstance(layer, TokenMLP)
    x, real = rows([5])
    for d in range(D_MODEL):
        hidden = ACTIVATIONS[activation](layer.expand[:, :5] @ x[0, :, d] + layer.expand_bias)
        expected = layer.contract[:5] @ hidden + layer.contract_bias[:5]
        assert_close(layer(x, real)[0, :, d], expected)


def test_local_units_have_weights_of_norm_one_that_lie_around_evenly_spread_centres() -> None:
    torch.manual_seed(0)
    weights = local_weights(32, 256)
    torch.testing.assert_close(weights.norm(dim=1), torch.ones(32), rtol=0, atol=1e-6)  # rounding
    far = (torch.arange(256) - 8 * torch.arange(32)[:, None]).abs() > 5 * 8
    # Five standard deviations of the widest window: exp(-12.5) = 4e-6 of the weight at the centre.
    assert 0 < weights[far].abs().max() < 1e-3
