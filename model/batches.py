"""Rows of tokens drawn from a text, and which of them a step must guess."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from model.config import Recipe
from model.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with masked tokens, and what stood there.

    Attributes:
        ids: Rows as the encoder sees them.
        lengths: Real tokens of each row.
        positions: (row, column) of each masked token.
        targets: The token that stood at each of `positions`.
    """

    ids: Int[Tensor, "batch seq"]
    lengths: Int[Tensor, " batch"]
    positions: Int[Tensor, "masked 2"]
    targets: Int[Tensor, " masked"]


class Sampler:
    """Draws masked batches without end; the same seed draws the same batches.

    Args:
        ids: The training text as one run of token ids.
    """

    def __init__(
        self, ids: NDArray[np.int64], *, tokenizer: Tokenizer, recipe: Recipe, seed: int
    ) -> None:
        self.recipe = recipe
        self._ids = torch.from_numpy(ids)
        self._prefix = torch.tensor(tokenizer.prefix, dtype=torch.int64)
        self._suffix = torch.tensor(tokenizer.suffix, dtype=torch.int64)
        self._mask_id = tokenizer.mask_id
        specials = torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
        specials[list(tokenizer.special_ids)] = True
        self._special = specials
        self._words = torch.nonzero(~specials).flatten()
        self._generator = torch.Generator().manual_seed(seed)
        longest = max(recipe.row_lengths) - tokenizer.n_wrap
        if len(ids) < longest:
            raise ValueError(f"the text has {len(ids)} tokens; a row takes {longest}")

    def draw(self) -> MaskedBatch:
        """Rows of one length at random places of the text, with an exact share masked."""
        lengths = self.recipe.row_lengths
        n_tokens = lengths[int(self._random(1).item() * len(lengths))]
        rows = self._rows(n_rows=max(1, self.recipe.batch_tokens // n_tokens), n_tokens=n_tokens)
        return self._masked(rows)

    def _rows(self, *, n_rows: int, n_tokens: int) -> Int[Tensor, "batch seq"]:
        n_text = n_tokens - len(self._prefix) - len(self._suffix)
        last_start = len(self._ids) - n_text
        starts = torch.randint(last_start + 1, (n_rows, 1), generator=self._generator)
        text = self._ids[starts + torch.arange(n_text)]
        return torch.cat(
            [self._prefix.expand(n_rows, -1), text, self._suffix.expand(n_rows, -1)], dim=1
        )

    def _masked(self, rows: Int[Tensor, "batch seq"]) -> MaskedBatch:
        special = self._special[rows].flatten()
        # An exact count keeps shapes, and so speed, the same from step to step.
        n_wanted = round(rows.numel() * self.recipe.mask_rate)
        n_masked = max(1, min(n_wanted, int((~special).sum())))
        order = self._random(rows.numel()).masked_fill(special, 2.0)
        chosen = order.argsort()[:n_masked]
        positions = torch.stack([chosen // rows.shape[1], chosen % rows.shape[1]], dim=1)
        targets = rows.flatten()[chosen]
        shown = torch.full_like(targets, self._mask_id)
        n_random = round(n_masked * self.recipe.random_share)
        n_kept = round(n_masked * self.recipe.keep_share)
        words = torch.randint(len(self._words), (n_random,), generator=self._generator)
        shown[:n_random] = self._words[words]
        shown[n_random : n_random + n_kept] = targets[n_random : n_random + n_kept]
        ids = rows.flatten().scatter(0, chosen, shown).view_as(rows)
        lengths = torch.full((rows.shape[0],), rows.shape[1], dtype=torch.int64)
        return MaskedBatch(ids, lengths, positions, targets)

    def _random(self, n: int) -> Tensor:
        return torch.rand(n, generator=self._generator)
