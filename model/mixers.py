"""How positions see one another: multi-head self-attention, or an MLP over the sequence axis.

Every mixer leaves the answer at a real position unchanged by padding and by the other rows of the
batch, and can show what each position took from each.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from model.config import EncoderConfig
from model.feedforward import ACTIVATIONS
from model.layers import linear

Stream = Float[Tensor, "batch seq d_model"]
Real = Bool[Tensor, "batch seq"]
Weights = Float[Tensor, "batch heads seq seq"]
Heads = Float[Tensor, "batch heads seq d_head"]


class Mixer(nn.Module):
    """What the encoder asks of a token mixer.

    Attributes:
        kind: What its weights are: `attention` (non-negative, rows sum to 1) or `token_mixing`.
    """

    kind: ClassVar[str]

    def forward(self, x: Stream, real: Real | None = None) -> Stream:
        """Mix the positions of `x`; `real` is False at padding, None where there is none."""
        raise NotImplementedError

    def with_weights(self, x: Stream, real: Real) -> tuple[Stream, Weights]:
        """`forward`, and what each position (third axis) took from each (fourth).

        The weights are zero from and to padding.
        """
        raise NotImplementedError


class RotaryPositions(nn.Module):
    """Turns pairs of features by angles that grow with the position, so products see distances.

    Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2, with halves as pairs.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, *, d_head: int, max_tokens: int, base: float) -> None:
        super().__init__()
        rates = base ** (-torch.arange(0, d_head, 2).float() / d_head)
        angles = torch.arange(max_tokens).float()[:, None] * rates
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        signs = torch.cat([-torch.ones(d_head // 2), torch.ones(d_head // 2)])
        self.register_buffer("sin", angles.sin().repeat(1, 2) * signs, persistent=False)

    def forward(self, x_BHTK: Heads) -> Heads:
        """Rotate every head of `x_BHTK` by its position."""
        n_tokens, half = x_BHTK.shape[2], x_BHTK.shape[3] // 2
        swapped = torch.cat([x_BHTK[..., half:], x_BHTK[..., :half]], dim=-1)
        return x_BHTK * self.cos[:n_tokens] + swapped * self.sin[:n_tokens]


class SelfAttention(Mixer):
    """Multi-head self-attention with one combined projection each for q, k and v, and RoPE.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2. Head h owns features
    h·K … (h+1)·K - 1 of each projection, which equals a separate matrix per head. Written out on
    a CPU, where the fused kernel's backward is slower at rows of some 100 tokens; fused on CUDA.
    """

    kind = "attention"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        d_model = config.d_model
        self.query = linear(d_model, d_model)
        self.key = linear(d_model, d_model)
        self.value = linear(d_model, d_model)
        self.output = linear(d_model, d_model, zero=True)
        self.rotate = RotaryPositions(
            d_head=d_model // config.n_heads, max_tokens=config.max_tokens, base=config.rope_base
        )

    def split(self, x: Stream) -> Heads:
        """Features to heads."""
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)

    def forward(self, x: Stream, real: Real | None = None) -> Stream:
        """Each position's mean of the values, by its weights."""
        q_BHTK, k_BHTK, v_BHTK = self._heads(x)
        if x.is_cuda:
            return self._joined(fused_attention(q_BHTK, k_BHTK, v_BHTK, real))
        return self._joined(_weights(q_BHTK, k_BHTK, real) @ v_BHTK)

    def with_weights(self, x: Stream, real: Real) -> tuple[Stream, Weights]:
        """Also the weights: softmax over the real keys."""
        q_BHTK, k_BHTK, v_BHTK = self._heads(x)
        weights = _weights(q_BHTK, k_BHTK, real) * real[:, None, :, None]
        return self._joined(weights @ v_BHTK), weights

    def _heads(self, x: Stream) -> tuple[Heads, Heads, Heads]:
        """Queries and keys, turned by their positions, and values."""
        q_BHTK = self.rotate(self.split(self.query(x)))
        k_BHTK = self.rotate(self.split(self.key(x)))
        return q_BHTK, k_BHTK, self.split(self.value(x))

    def _joined(self, mixed_BHTK: Heads) -> Stream:
        return self.output(mixed_BHTK.transpose(1, 2).flatten(2))


def _weights(q_BHTK: Heads, k_BHTK: Heads, real: Real | None) -> Weights:
    """Softmax over the real keys, of every query."""
    scores = (q_BHTK * q_BHTK.shape[3] ** -0.5) @ k_BHTK.transpose(2, 3)
    if real is None:
        return scores.softmax(dim=3)
    keys = real[:, None, None, :]
    # The lowest finite number, not -inf: a row of nothing but padding must not become NaN.
    return scores.masked_fill(~keys, torch.finfo(scores.dtype).min).softmax(dim=3)


def fused_attention(q_BHTK: Heads, k_BHTK: Heads, v_BHTK: Heads, real: Real | None) -> Heads:
    """The same in one kernel, which keeps no weights."""
    keys = None if real is None else real[:, None, None, :]
    return functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, attn_mask=keys)


class TokenMLP(Mixer):
    """Mixes positions with an MLP over the sequence axis, per feature.

    Source: Tolstikhin et al. 2021, arXiv:2105.01601, section 2. Unlike the paper, padded
    positions are zeroed and the weights sliced to the length at hand, so neither padding
    nor a text's neighbours in the batch change anything at its real positions.
    """

    kind = "token_mixing"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.n_groups = config.n_heads
        self.activation = ACTIVATIONS[config.token_activation]
        n, d_hidden = config.max_tokens, config.d_token_hidden
        self.expand = nn.Parameter(local_weights(d_hidden, n))
        self.expand_bias = nn.Parameter(torch.zeros(d_hidden))
        self.contract = nn.Parameter(torch.zeros(n, d_hidden))
        self.contract_bias = nn.Parameter(torch.zeros(n))

    def forward(self, x: Stream, real: Real | None = None) -> Stream:
        """Mix `x`; what stands at padding, in or out, is of no account."""
        return self._contracted(self._hidden(x, real), x)

    def with_weights(self, x: Stream, real: Real) -> tuple[Stream, Weights]:
        """Also the token MLP's derivative at `x`, `W2 · diag(mean act'(z)) · W1`, per group.

        The mean runs over the features of a group, so this is the group's mean Jacobian. It may
        be negative and its rows do not sum to 1.
        """
        n_tokens = x.shape[1]
        z_BDF = self._hidden(x, real)
        slopes_BHF = SLOPES[self.activation](z_BDF).unflatten(1, (self.n_groups, -1)).mean(dim=2)
        contract_BHTF = self.contract[:n_tokens] * slopes_BHF[:, :, None, :]
        jacobian = contract_BHTF @ self.expand[:, :n_tokens]
        weights = jacobian * (real[:, None, None, :] & real[:, None, :, None])
        return self._contracted(z_BDF, x), weights

    def _hidden(self, x: Stream, real: Real | None) -> Float[Tensor, "batch d_model d_hidden"]:
        """The hidden layer before its activation."""
        x_BTD = x if real is None else x * real[:, :, None]
        # Features as rows: one large product over B·D rows, where a product per text is slow.
        weights = self.expand[:, : x.shape[1]]
        return functional.linear(x_BTD.transpose(1, 2), weights, self.expand_bias)

    def _contracted(self, z_BDF: Float[Tensor, "batch d_model d_hidden"], x: Stream) -> Stream:
        """From the hidden layer back to as many positions as `x` has."""
        h_BDF: Tensor = self.activation(z_BDF)
        weights, bias = self.contract[: x.shape[1]], self.contract_bias[: x.shape[1]]
        return functional.linear(h_BDF, weights, bias).transpose(1, 2)


def local_weights(d_hidden: int, n_tokens: int) -> Float[Tensor, "d_hidden n_tokens"]:
    """Random weights of units that each look at one stretch of the row.

    The units' centres are spread evenly; their Gaussian windows are by chance 1, 2, 4 or 8
    tokens wide (standard deviation); each unit's weights have norm 1. Neighbours tell most about a
    token, and units that see the whole row have to learn that first.
    """
    centre = torch.arange(d_hidden)[:, None] * (n_tokens / d_hidden)
    width = torch.tensor([1.0, 2.0, 4.0, 8.0])[torch.randint(4, (d_hidden, 1))]
    window = torch.exp(-0.5 * ((torch.arange(n_tokens) - centre) / width) ** 2)
    weights = torch.randn(d_hidden, n_tokens) * window
    return weights / weights.norm(dim=1, keepdim=True)


def gelu_slope(z: Tensor) -> Tensor:
    """The derivative of GELU: Φ(z) + z · φ(z)."""
    return (
        0.5 * (1 + torch.erf(z * 0.5**0.5)) + z * torch.exp(-0.5 * z * z) * (2 * torch.pi) ** -0.5
    )


SLOPES: dict[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] = {
    ACTIVATIONS["gelu"]: gelu_slope,
    ACTIVATIONS["relu"]: lambda z: (z > 0).to(z.dtype),
    ACTIVATIONS["relu2"]: lambda z: 2 * functional.relu(z),
}

MIXERS: dict[str, type[Mixer]] = {"mhsa": SelfAttention, "mlp_mixer": TokenMLP}
