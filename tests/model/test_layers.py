"""The linear map and the norm, as they start."""

import pytest
import torch

from model.layers import NORMS, layer_norm, linear, rms_norm


def test_a_linear_map_starts_so_that_it_keeps_the_scale_of_its_input() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 256)
    # 200 x 64 outputs: their standard deviation is known to about 1 %.
    assert abs(linear(256, 64)(x).std().item() - 1) < 0.05


def test_a_linear_map_has_no_bias() -> None:
    assert [name for name, _ in linear(4, 6).named_parameters()] == ["weight"]


def test_a_map_that_writes_to_the_stream_starts_at_zero() -> None:
    assert not linear(4, 6, zero=True).weight.any()


def test_the_rms_norm_divides_by_the_root_mean_square_and_multiplies_by_its_gain() -> None:
    torch.manual_seed(0)
    layer, x = rms_norm(16), 5 * torch.randn(3, 16)
    torch.nn.init.normal_(layer.weight)
    expected = x / x.square().mean(dim=1, keepdim=True).sqrt() * layer.weight
    # rtol: float32 rounding, and eps = 1e-6 beside a mean square of about 25.
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)


def test_the_layer_norm_centres_as_well_and_has_a_gain_but_no_bias() -> None:
    torch.manual_seed(0)
    layer, x = layer_norm(16), 5 * torch.randn(3, 16) + 2
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    torch.nn.init.normal_(layer.weight)
    centred = x - x.mean(dim=1, keepdim=True)
    expected = centred / centred.square().mean(dim=1, keepdim=True).sqrt() * layer.weight
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_the_norm_of_zeros_is_zero(norm: str) -> None:
    assert not NORMS[norm](16)(torch.zeros(2, 16)).any()
