"""The layers everything is built from: a linear map and a norm, with their initialisation."""

from torch import nn


def linear(n_in: int, n_out: int, *, zero: bool = False) -> nn.Linear:
    """A linear map without bias; weights N(0, 1/n_in), or zero.

    Zero is for the maps that write to the stream: every block then starts as the identity. Without
    it a small encoder sits on the unigram plateau for hundreds of steps.
    """
    layer = nn.Linear(n_in, n_out, bias=False)
    if zero:
        nn.init.zeros_(layer.weight)
    else:
        nn.init.normal_(layer.weight, std=n_in**-0.5)
    return layer


def rms_norm(d_model: int) -> nn.Module:
    """Root-mean-square norm with a gain. Source: Zhang and Sennrich 2019, arXiv:1910.07467."""
    return nn.RMSNorm(d_model, eps=1e-6)


def layer_norm(d_model: int) -> nn.Module:
    """Layer norm with a gain and no bias. Source: Ba et al. 2016, arXiv:1607.06450."""
    return nn.LayerNorm(d_model, eps=1e-6, bias=False)


NORMS = {"rms": rms_norm, "layer": layer_norm}
