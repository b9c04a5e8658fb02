"""Tokens to one vector: each pooling reads real positions only."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Hidden = Float[Tensor, "batch seq d_model"]
Real = Bool[Tensor, "batch seq"]
Pooled = Float[Tensor, "batch d_model"]


def mean(x: Hidden, real: Real) -> Pooled:
    """The mean of the real positions; zero for a row without any."""
    total = (x * real[:, :, None]).sum(dim=1)
    return total / real.sum(dim=1, keepdim=True).clamp(min=1)


def first(x: Hidden, real: Real) -> Pooled:
    """The first position: [CLS] where the tokenizer writes one."""
    return x[:, 0] * real[:, :1]


def maximum(x: Hidden, real: Real) -> Pooled:
    """The largest value of each feature; zero for a row without any real position."""
    lowest = x.masked_fill(~real[:, :, None], torch.finfo(x.dtype).min)
    return lowest.amax(dim=1) * real[:, :1]


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean,
    "first": first,
    "max": maximum,
}
