"""Rows of tokens drawn from a text, and which of them a step must guess."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from model.config import Recipe
from model.tokenizer import Tokenizer
from model.tokens import Tokens

# How far a line's start is looked for: past the end of nearly every paragraph.
LINE_TOKENS = 512


@dataclass(frozen=True)
class MaskedBatch:
    """Full rows with masked tokens, and what stood there.

    Attributes:
        ids: Rows as the encoder sees them.
        positions: (row, column) of each masked token.
        targets: The token that stood at each of `positions`.
    """

    ids: Int[Tensor, "batch seq"]
    positions: Int[Tensor, "masked 2"]
    targets: Int[Tensor, " masked"]

    def part(self, index: int, n_parts: int) -> "MaskedBatch":
        """One of `n_parts` runs of rows, which together are the batch."""
        start, stop = (len(self.ids) * i // n_parts for i in (index, index + 1))
        rows = self.positions[:, 0]
        inside = (rows >= start) & (rows < stop)
        shift = torch.tensor([start, 0])
        return MaskedBatch(
            self.ids[start:stop], self.positions[inside] - shift, self.targets[inside]
        )

    def to(self, device: torch.device) -> "MaskedBatch":
        """The batch on a device."""
        if device.type == "cpu":
            return self
        return MaskedBatch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


class Sampler:
    """Draws the masked batch of any step: a batch is a function of the seed and the step.

    So a run that is taken up again, on however many processes, draws what it would have drawn.

    Args:
        tokens: The training text, its lines ended by the tokenizer's suffix.

    Raises:
        ValueError: The text is shorter than a row, or rows are to begin with lines and the
            vocabulary does not mark where lines end.
    """

    def __init__(self, tokens: Tokens, *, tokenizer: Tokenizer, recipe: Recipe, seed: int) -> None:
        self.recipe = recipe
        self.seed = seed
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._special = np.zeros(tokenizer.vocab_size, np.bool_)
        self._special[list(tokenizer.special_ids)] = True
        self._words = np.flatnonzero(~self._special)
        longest = max(recipe.row_lengths) - tokenizer.n_wrap
        if len(tokens) < longest:
            raise ValueError(f"the text has {len(tokens)} tokens; a row takes {longest}")
        if recipe.line_start_share and not tokenizer.suffix:
            raise ValueError(
                f"line_start_share={recipe.line_start_share} with a vocabulary of "
                f"{tokenizer.kind}; only bpe and wordpiece mark where lines end, so 0"
            )

    def draw(self, step: int) -> MaskedBatch:
        """Rows of one length from random places of the text, with an exact share masked."""
        random = np.random.default_rng((self.seed, step))
        n_tokens = int(random.choice(self.recipe.row_lengths))
        n_rows = max(1, self.recipe.batch_tokens // n_tokens)
        return self._masked(self._rows(random, n_rows=n_rows, n_tokens=n_tokens), random)

    def _rows(
        self, random: np.random.Generator, *, n_rows: int, n_tokens: int
    ) -> NDArray[np.int64]:
        prefix, suffix = self._tokenizer.prefix, self._tokenizer.suffix
        n_text = n_tokens - len(prefix) - len(suffix)
        starts = random.integers(len(self._tokens) - n_text + 1, size=n_rows)
        n_led = round(n_rows * self.recipe.line_start_share)
        if n_led:
            starts[:n_led] = self._line_starts(starts[:n_led], n_text)
        rows = np.empty((n_rows, n_tokens), np.int64)
        rows[:, : len(prefix)] = prefix
        rows[:, len(prefix) : len(prefix) + n_text] = self._tokens.rows(starts, n_text)
        rows[:, len(prefix) + n_text :] = suffix
        return rows

    def _line_starts(self, places: NDArray[np.int64], n_text: int) -> NDArray[np.int64]:
        """The start of the first line after each place; the place itself where none is near."""
        n_seen = min(LINE_TOKENS, len(self._tokens) - n_text)
        # Every start found must leave a row's length of text.
        looked_from = np.minimum(places, len(self._tokens) - n_text - n_seen)
        ends = self._tokens.rows(looked_from, n_seen) == self._tokenizer.suffix[-1]
        if not n_seen:
            return places
        return np.where(ends.any(axis=1), looked_from + ends.argmax(axis=1) + 1, places)

    def _masked(self, rows: NDArray[np.int64], random: np.random.Generator) -> MaskedBatch:
        ids = rows.flatten()
        special = self._special[ids]
        # An exact count keeps shapes, and so speed, the same from step to step.
        n_wanted = round(ids.size * self.recipe.mask_rate)
        n_masked = max(1, min(n_wanted, int((~special).sum())))
        order = np.where(special, 2.0, random.random(ids.size))
        chosen = np.argsort(order)[:n_masked]
        targets = ids[chosen]
        shown = np.full(n_masked, self._tokenizer.mask_id)
        n_random = round(n_masked * self.recipe.random_share)
        n_kept = round(n_masked * self.recipe.keep_share)
        shown[:n_random] = self._words[random.integers(len(self._words), size=n_random)]
        shown[n_random : n_random + n_kept] = targets[n_random : n_random + n_kept]
        ids[chosen] = shown
        positions = np.stack(np.divmod(chosen, rows.shape[1]), axis=1)
        return MaskedBatch(
            torch.from_numpy(ids.reshape(rows.shape)),
            torch.from_numpy(positions),
            torch.from_numpy(targets),
        )
