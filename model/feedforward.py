"""The MLP sublayer: each position by itself, through one hidden layer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from model.config import EncoderConfig
from model.layers import linear


def relu2(x: Tensor) -> Tensor:
    """Squared ReLU. Source: So et al. 2021 (Primer), arXiv:2109.08668, section 4."""
    return functional.relu(x).square()


class FeedForward(nn.Module):
    """`down(act(up(x)))`, without biases."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.up = linear(config.d_model, config.d_feedforward)
        self.down = linear(config.d_feedforward, config.d_model, zero=True)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform each position independently of the others."""
        return self.down(self.activation(self.up(x)))


class SwiGLU(nn.Module):
    """`down(silu(gate(x)) * up(x))`. Source: Shazeer 2020, arXiv:2002.05202, equation 6."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gate = linear(config.d_model, config.d_feedforward)
        self.up = linear(config.d_model, config.d_feedforward)
        self.down = linear(config.d_feedforward, config.d_model, zero=True)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform each position independently of the others."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


ACTIVATIONS = {"gelu": functional.gelu, "relu": torch.relu, "relu2": relu2}

FEEDFORWARDS: dict[str, type[nn.Module]] = {
    "gelu": FeedForward,
    "relu": FeedForward,
    "relu2": FeedForward,
    "swiglu": SwiGLU,
}
