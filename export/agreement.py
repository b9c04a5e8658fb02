"""How far a graph of another precision is from the fp32 one, on held-out text.

Bounds hold for trained weights: with random ones the likeliest token is a matter of chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from export.parity import Array, Arrays, ParityError, alone_against_batched, differences, run
from model.tokenizer import Tokenizer

SMALLEST_COSINE, SMALLEST_TOP1 = 0.999, 0.97
N_ROWS, ROWS_IN_A_BATCH = 192, 16
MASK_EVERY = 7  # tokens


@dataclass(frozen=True)
class Agreement:
    """A graph beside the fp32 one.

    Attributes:
        cosine: Of each pooled output, the smallest of any vector with its own in fp32. The bound
            is on the first, which is what a request gets that names none.
        top1: Share of masks with the same likeliest token.
        off: Largest difference of each output, over the larger of 1 and its magnitude.
        alone_against_batched: The same between a row alone and in its batch.
    """

    cosine: dict[str, float]
    top1: float
    off: dict[str, float]
    alone_against_batched: float

    def __str__(self) -> str:
        cosines = ", ".join(f"{name} {cosine:.5f}" for name, cosine in self.cosine.items())
        return (
            f"agreement with fp32: likeliest token {self.top1:.4f}; smallest cosine {cosines}; "
            f"{self.alone_against_batched:.1e} alone against batched"
        )


def proven(
    found: ort.InferenceSession, reference: ort.InferenceSession, batches: Sequence[Arrays]
) -> Agreement:
    """`compare` of what is to be a variant.

    Raises:
        ParityError: They agree less than a variant has to.
    """
    agreement = compare(found, reference, batches)
    cosine, top1 = next(iter(agreement.cosine.values())), agreement.top1
    if not (cosine >= SMALLEST_COSINE and top1 >= SMALLEST_TOP1):
        raise ParityError(
            f"the smallest cosine is {cosine:.5f}, at least {SMALLEST_COSINE} is wanted; the "
            f"likeliest token is the same at {top1:.1%} of masks, at least {SMALLEST_TOP1:.0%} is "
            "wanted (weights that were trained too little do not pass)"
        )
    return agreement


def compare(
    found: ort.InferenceSession, reference: ort.InferenceSession, batches: Sequence[Arrays]
) -> Agreement:
    """Run both on the same batches."""
    cosines: dict[str, float] = {}
    same, off = [], dict[str, float]()
    for inputs in batches:
        mine, theirs = run(found, inputs), run(reference, inputs)
        for name in theirs:
            if name.startswith("pooled_"):
                smallest = float(_cosines(mine[name], theirs[name]).min())
                cosines[name] = min(cosines.get(name, 1.0), smallest)
        same.append(mine["top_ids"][:, 0] == theirs["top_ids"][:, 0])
        for name, difference in differences(mine, theirs, inputs).items():
            off[name] = max(off.get(name, 0.0), difference)
    top1 = float(np.concatenate(same).mean())
    alone = max(alone_against_batched(found, inputs) for inputs in batches[::-3])
    return Agreement(cosines, top1, off, alone)


def _cosines(found: Array, expected: Array) -> Array:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines: Array = (found * expected).sum(axis=1) / np.maximum(lengths, 1e-12)
    return cosines


def batches_of(text: str, tokenizer: Tokenizer, *, max_tokens: int) -> list[Arrays]:
    """Rows of held-out text, of every length, with masks; the same ones each time.

    Raises:
        ValueError: The text is too short.
    """
    ids, random = tokenizer.encode_corpus(text), np.random.default_rng(0)
    room = max_tokens - tokenizer.n_wrap
    if len(ids) < 2 * room:
        raise ValueError(f"the text has {len(ids)} tokens; at least {2 * room} are wanted")
    rows = []
    for length in np.sort(random.integers(min(4, room), room + 1, N_ROWS)):
        start = random.integers(len(ids) - length)
        rows.append(ids[start : start + length].copy())
    return list(_batches(rows, tokenizer))


def _batches(rows: Sequence[Array], tokenizer: Tokenizer) -> Iterator[Arrays]:
    before = len(tokenizer.prefix)
    for start in range(0, len(rows), ROWS_IN_A_BATCH):
        part = rows[start : start + ROWS_IN_A_BATCH]
        wrapped, masks = [], []
        for row, ids in enumerate(part):
            columns = np.arange(len(ids) % MASK_EVERY // 2, len(ids), MASK_EVERY)
            ids[columns] = tokenizer.mask_id
            masks += [(row, before + int(column)) for column in columns]
            wrapped.append(tokenizer.wrap(ids.tolist()))
        padded = np.full((len(part), max(map(len, wrapped))), tokenizer.pad_id, np.int64)
        for line, found in zip(padded, wrapped, strict=True):
            line[: len(found)] = found
        lengths = np.array([len(found) for found in wrapped], np.int64)
        yield {
            "input_ids": padded,
            "lengths": lengths,
            "mask_positions": np.array(masks, np.int64),
        }
