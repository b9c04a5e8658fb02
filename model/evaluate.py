"""Scores: held-out masked loss and top-1, on windows and masks that never change.

Protocol, version 1. Windows: the held-out text cut into consecutive windows, the remainder
dropped. Masks: `numpy.random.default_rng(20240).random((draws, windows, length)) < 0.15`; a masked
token is always shown as [MASK]. Score: cross-entropy over the vocabulary without its special
tokens, top-1 and top-5 accuracy, each averaged over every masked token of every draw. Special
tokens in the text, such as [UNK] for a character that training never showed, or the [SEP] that ends
each line where a vocabulary has one, are not masked.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.encoder import Encoder
from model.guesser import TOKENS_PER_BATCH, Guesser, guesser, judged
from model.tokenizer import Tokenizer

SEED, MASK_RATE, DRAWS = 20240, 0.15, 4


@dataclass(frozen=True)
class Score:
    """What an encoder reached on held-out text.

    Attributes:
        loss: Nats per masked token.
        accuracy: Share of masked tokens whose likeliest guess is right.
        n_masked: Tokens scored.
        top5: Share of masked tokens that are among the five likeliest guesses.
    """

    loss: float
    accuracy: float
    n_masked: int
    top5: float

    def __str__(self) -> str:
        shares = f"top-1 {self.accuracy:.4f}  top-5 {self.top5:.4f}"
        return f"loss {self.loss:.4f} nats  {shares}  ({self.n_masked:,} tokens)"


def held_out_score(
    encoder: Encoder,
    ids: NDArray[np.int64],
    *,
    tokenizer: Tokenizer,
    length: int,
    draws: int = DRAWS,
    max_windows: int | None = None,
) -> Score:
    """`score` of an encoder."""
    subject = guesser(encoder, tokenizer)
    return score(subject, ids, length=length, draws=draws, max_windows=max_windows)


def score(
    subject: Guesser,
    ids: NDArray[np.int64],
    *,
    length: int,
    draws: int = DRAWS,
    max_windows: int | None = None,
    tell: Callable[[int], None] = lambda done: None,
) -> Score:
    """Score `subject` on a held-out run of ids, in windows of `length` tokens of text.

    Args:
        tell: Is told how many more windows are scored, `draws` times each.

    Raises:
        ValueError: There is less text than one window, the encoder takes shorter rows, or the
            masks meet no token.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}; at least 1")
    windows = windows_of(ids, subject.tokenizer, length=length, max_tokens=subject.max_tokens)
    masks = np.random.default_rng(SEED).random((draws, *windows.shape)) < MASK_RATE
    masks &= ~np.isin(windows, list(subject.tokenizer.special_ids))
    if max_windows is not None:
        windows, masks = windows[:max_windows], masks[:, :max_windows]
    n_masked = int(masks.sum())
    if not n_masked:
        raise ValueError(f"the masks meet none of the {len(ids)} tokens of the held-out text")
    n_rows = max(1, TOKENS_PER_BATCH // length)
    totals = np.zeros(3)
    for mask in masks:
        for start in range(0, len(windows), n_rows):
            part = slice(start, start + n_rows)
            if mask[part].any():
                totals += _sums(subject, windows[part], mask[part])
            tell(len(windows[part]))
    loss, right, near = (totals / n_masked).tolist()
    return Score(loss, right, n_masked, near)


def score_by_length(
    subject: Guesser, ids: NDArray[np.int64], *, max_tokens: int = 65_536
) -> dict[int, Score]:
    """One draw of `score` at 4, 8, 16 … tokens and at the longest, on at most `max_tokens` each."""
    longest = subject.room
    lengths = sorted({4 << i for i in range(16) if 4 << i < longest} | {longest})
    return {
        length: score(subject, ids, length=length, draws=1, max_windows=max_tokens // length)
        for length in lengths
        if length <= len(ids)
    }


def pseudo_perplexity(
    subject: Guesser, ids: NDArray[np.int64], *, length: int, max_windows: int = 64
) -> float:
    """e to the mean loss of each token with only itself masked.

    Source: Salazar et al. 2020, arXiv:1910.14659, section 3. Every token costs a row, so only the
    first windows are scored.
    """
    windows = windows_of(ids, subject.tokenizer, length=length, max_tokens=subject.max_tokens)
    ordinary = ~np.isin(windows, list(subject.tokenizer.special_ids))
    total, n_scored = 0.0, 0
    for window, scored in zip(windows[:max_windows], ordinary, strict=False):
        masks = np.eye(length, dtype=np.bool_)[scored]
        if len(masks):
            rows = np.repeat(window[None], len(masks), axis=0)
            total, n_scored = total + _sums(subject, rows, masks)[0], n_scored + len(masks)
    if not n_scored:
        raise ValueError("the first windows of the held-out text have no token to score")
    return float(np.exp(total / n_scored))


def windows_of(
    ids: NDArray[np.int64], tokenizer: Tokenizer, *, length: int, max_tokens: int
) -> NDArray[np.int64]:
    """Consecutive windows of `length` ids, the remainder dropped.

    Raises:
        ValueError: There is less text than one window, or the encoder takes shorter rows.
    """
    n_row = length + tokenizer.n_wrap
    if length < 1:
        raise ValueError(f"windows of {length} tokens; at least 1")
    if n_row > max_tokens:
        raise ValueError(f"windows of {length} make rows of {n_row} tokens; at most {max_tokens}")
    if len(ids) < length:
        raise ValueError(f"the held-out text has {len(ids)} tokens; a window takes {length}")
    return ids[: len(ids) // length * length].reshape(-1, length)


def _sums(
    subject: Guesser, rows: NDArray[np.int64], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Loss, right guesses and near ones, summed over the masked tokens of some windows."""
    tokenizer = subject.tokenizer
    shown = np.where(mask, tokenizer.mask_id, rows)
    n_prefix = len(tokenizer.prefix)
    ids = np.pad(shown, ((0, 0), (n_prefix, len(tokenizer.suffix))))
    ids[:, :n_prefix] = tokenizer.prefix
    ids[:, n_prefix + rows.shape[1] :] = tokenizer.suffix
    row, column = np.nonzero(mask)
    positions = np.stack([row, column + n_prefix], axis=1)
    losses, ranks = judged(subject, ids, positions, rows[mask])
    return np.array([losses.sum(), (ranks == 0).sum(), (ranks < 5).sum()])
