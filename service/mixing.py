"""Mixing weights made smaller: heads averaged, layers multiplied, the largest of each query."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Reduce = Literal["none", "mean", "rollout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """What is wanted of a text's mixing weights.

    Attributes:
        layers, heads: Those that are read, in this order.
        reduce: `mean` averages the heads; `rollout` multiplies the layers as well.
        top_k: Of each query only the largest.
        left_out: Tokens at the beginning and at the end that are neither query nor key.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    reduce: Reduce = "none"
    top_k: int | None = None
    left_out: tuple[int, int] = (0, 0)

    @property
    def n_matrices(self) -> int:
        """Matrices in the answer to a text."""
        if self.reduce == "rollout":
            return 1
        return len(self.layers) * (1 if self.reduce == "mean" else len(self.heads))

    def of(self, weights: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """`weights`, and `keys` with `top_k`, from all weights of a text, [L,H,T,T]."""
        # Copied where it is not reduced: a view would hold the whole batch until its last text.
        chosen = weights[np.ix_(self.layers, self.heads)]
        if self.reduce != "none":
            chosen = chosen.mean(axis=1)
        if self.reduce == "rollout":
            chosen = rollout(chosen)
        return shown(chosen, self.left_out, self.top_k)


def rollout(weights: NDArray[Any]) -> NDArray[Any]:
    """Attention through all layers, [T,T], from that of each layer, [L,T,T].

    Half of each layer is its residual connection. Source: Abnar and Zuidema 2020, arXiv:2005.00928,
    section 3.
    """
    through: NDArray[Any] = np.eye(weights.shape[-1], dtype=weights.dtype)
    for layer in weights:
        mixed = (layer + np.eye(len(layer), dtype=layer.dtype)) / 2
        through = (mixed / mixed.sum(axis=-1, keepdims=True)) @ through
    return through


def shown(
    weights: NDArray[Any], left_out: tuple[int, int], top_k: int | None
) -> dict[str, NDArray[Any]]:
    """Weights without what is left out at both ends; with `top_k` the largest of each query.

    The largest by magnitude, largest first: `keys` int32 and `weights`, both [...,T,k].
    """
    before, stop = left_out[0], weights.shape[-1] - left_out[1]
    inner = weights[..., before:stop, before:stop]
    if top_k is None:
        return {"weights": np.ascontiguousarray(inner)}
    keys = np.argsort(-np.abs(inner), axis=-1, kind="stable")[..., :top_k].astype(np.int32)
    return {"weights": np.take_along_axis(inner, keys, axis=-1), "keys": keys}


def pairs(keys: NDArray[Any], weights: NDArray[Any]) -> list[Any]:
    """[key, weight] of each query, nested as the arrays are."""
    flat = [
        [list(pair) for pair in zip(of_keys, of_weights, strict=True)]
        for of_keys, of_weights in zip(
            keys.reshape(-1, keys.shape[-1]).tolist(),
            weights.reshape(-1, weights.shape[-1]).tolist(),
            strict=True,
        )
    ]
    for size in reversed(weights.shape[1:-1]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]
    return flat
