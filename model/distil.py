"""The loss that makes mean-pooled vectors good sentence vectors: like a teacher's, in every part.

The teacher's vectors are turned onto their leading principal directions, ordered by how much they
carry, so that a vector's first k features are the best k-dimensional vector by themselves; the
loss is taken on several such prefixes (Kusupati et al. 2022, arXiv:2205.13147). Each prefix is
drawn to the teacher's direction (Reimers and Gurevych 2020, arXiv:2004.09813), and the
similarities within a batch to the teacher's (Tung and Mori 2019, arXiv:1907.09682).
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from model.encoder import Encoder, real_positions
from model.pooling import mean
from model.tokenizer import Tokenizer

Vectors = Float[Tensor, "batch d"]

# Measured: docs/experiments.md. Similarities differ by hundredths where directions do by tenths.
SIMILARITY_WEIGHT = 30.0
TEMPERATURE = 0.05  # of contrast: Gao et al. 2021 (SimCSE), arXiv:2104.08821
# Vectors that a nearest one is looked for among: their products fit 64 MiB a thousand rows.
STRETCH = 16384
PARTS = 4  # of a batch, each padded to its own longest


def onto_leading(vectors: NDArray[np.floating], n: int) -> NDArray[np.float16]:
    """Vectors [N,D] turned onto their `n` leading principal directions, not centred.

    No more than D are there: the answer is [N, min(n, D)].
    """
    moments = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), 8192):
        part = vectors[start : start + 8192].astype(np.float64)
        moments += part.T @ part
    directions = np.linalg.eigh(moments)[1][:, ::-1][:, :n]
    # Which way a direction points is chance; the largest entry is made positive.
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest, np.arange(directions.shape[1])])
    turned = [
        (vectors[start : start + 8192].astype(np.float64) @ directions).astype(np.float16)
        for start in range(0, len(vectors), 8192)
    ]
    return np.concatenate(turned)


def nearest(vectors: NDArray[np.floating], *, among: int = STRETCH) -> NDArray[np.int64]:
    """The index of each vector's likest other one, within stretches of about `among` vectors.

    What is drawn at random is hardly ever alike; where two are, small differences can be learnt.
    Of a single vector it is the vector itself.
    """
    found = np.zeros(len(vectors), np.int64)
    for stretch in np.array_split(np.arange(len(vectors)), -(-len(vectors) // among)):
        units = vectors[stretch].astype(np.float32)
        units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-12)
        for start in range(0, len(units), 1024):
            alike = units[start : start + 1024] @ units.T
            np.fill_diagonal(alike[:, start:], -2.0)  # below any cosine
            found[stretch[start : start + 1024]] = stretch[alike.argmax(axis=1)]
    return found


def prefixes(n: int) -> list[int]:
    """How many leading features count as a vector: all, and halves down to 32."""
    found = [n]
    while found[-1] >= 64:
        found.append(found[-1] // 2)
    return found


def imitation(found: Vectors, wanted: Float[Tensor, "batch k"]) -> Float[Tensor, ""]:
    """How far vectors [B,D] are from a teacher's [B,K], K ≤ D, in direction and likeness."""
    total = found.new_zeros(())
    sizes = prefixes(wanted.shape[1])
    alike = _similarities(wanted)
    for n in sizes:
        mine, theirs = found[:, :n], wanted[:, :n]
        total = total + (1 - functional.cosine_similarity(mine, theirs, dim=1)).mean()
        total = total + SIMILARITY_WEIGHT * (_similarities(mine) - alike).square().mean()
    return total / len(sizes)


def contrast(first: Vectors, second: Vectors) -> Float[Tensor, ""]:
    """Cross-entropy of finding each vector's partner among all second ones, and back."""
    total = first.new_zeros(())
    sizes = prefixes(first.shape[1])
    truth = torch.arange(len(first), device=first.device)
    for n in sizes:
        a, b = (functional.normalize(x[:, :n], dim=1) for x in (first, second))
        logits = a @ b.T / TEMPERATURE
        total = total + functional.cross_entropy(logits, truth)
        total = total + functional.cross_entropy(logits.T, truth)
    return total / (2 * len(sizes))


def likeness(first: Vectors, second: Vectors, scores: Float[Tensor, " batch"]) -> Float[Tensor, ""]:
    """How far the cosines of pairs are from their scores of 0 to 1."""
    sizes = prefixes(first.shape[1])
    errors = [
        functional.cosine_similarity(first[:, :n], second[:, :n], dim=1) - scores for n in sizes
    ]
    return SIMILARITY_WEIGHT * torch.stack(errors).square().mean()


def sentence_vectors(encoder: Encoder, rows: Sequence[Sequence[int]]) -> Vectors:
    """The mean-pooled vector of each row of ids, in the order given.

    Rows alike in length go together, so that there is little padding.
    """
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    parts = []
    for part in np.array_split(np.array(order), min(PARTS, len(rows))):
        ids, lengths = padded([rows[i] for i in part])
        device = encoder.head_bias.device
        ids, lengths = ids.to(device), lengths.to(device)
        parts.append(mean(encoder(ids, lengths).float(), real_positions(ids, lengths)))
    back = torch.from_numpy(np.argsort(order)).to(parts[0].device)
    return torch.cat(parts)[back]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "batch seq"], Int[Tensor, " batch"]]:
    """Rows of one length, and their lengths; what stands at padding is of no account."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([len(row) for row in rows])


def rows_of(texts: Sequence[str], tokenizer: Tokenizer, *, max_tokens: int) -> list[list[int]]:
    """Each text as a row of ids, cut where it is too long."""
    room = max_tokens - tokenizer.n_wrap
    return [tokenizer.wrap(ids[:room]) for ids in tokenizer.encode_ids(texts)]


def _similarities(x: Vectors) -> Float[Tensor, "batch batch"]:
    x = functional.normalize(x, dim=1)
    return x @ x.T
