"""One small interface to whatever answers: an encoder in torch, or an artefact's session."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from model.encoder import Encoder
from model.pooling import POOLINGS
from model.tokenizer import Tokenizer

TOKENS_PER_BATCH = 8192
LOGITS_PER_BATCH = 2**24  # 64 MiB; a large vocabulary takes more room than the rows

Ids = NDArray[np.int64]
Numbers = NDArray[np.floating]


@dataclass(frozen=True)
class Guesser:
    """What can be scored, whatever computes it.

    Attributes:
        predict: Full rows of ids int64 [R,T] and positions int64 [N,2] (row, column) to logits or
            log-probabilities [N,V], in an array that the caller may write to.
        pool: Full rows of ids int64 [R,T] and the name of a pooling to vectors [R,D].
        poolings: The names that `pool` takes.
        max_tokens: Longest row.
    """

    predict: Callable[[Ids, Ids], Numbers]
    pool: Callable[[Ids, str], Numbers]
    poolings: tuple[str, ...]
    tokenizer: Tokenizer
    max_tokens: int

    @property
    def room(self) -> int:
        """Tokens of text in the longest row."""
        return self.max_tokens - self.tokenizer.n_wrap


def guesser(encoder: Encoder, tokenizer: Tokenizer) -> Guesser:
    """An encoder in evaluation mode, to be scored on the device it is on."""
    device = encoder.head_bias.device

    @torch.no_grad()
    def hidden(ids: Ids) -> torch.Tensor:
        was_training = encoder.training
        encoder.eval()
        found = encoder(torch.from_numpy(ids).to(device))
        encoder.train(was_training)
        return found

    @torch.no_grad()
    def predict(ids: Ids, positions: Ids) -> Numbers:
        logits = encoder.logits(hidden(ids), torch.from_numpy(positions).to(device))
        return logits.float().cpu().numpy()

    @torch.no_grad()
    def pool(ids: Ids, pooling: str) -> Numbers:
        real = torch.ones(ids.shape, dtype=torch.bool, device=device)
        return POOLINGS[pooling](hidden(ids), real).float().cpu().numpy()

    return Guesser(predict, pool, tuple(POOLINGS), tokenizer, encoder.config.max_tokens)


def judged(
    subject: Guesser, ids: Ids, positions: Ids, wanted: Ids
) -> tuple[NDArray[np.float64], Ids]:
    """How a subject does at some masks, special tokens left out of the vocabulary.

    Args:
        ids: Full rows [R,T], masks in place.
        positions: Of the masks [N,2] (row, column).
        wanted: The token that each mask hides [N].

    Returns:
        Its loss at each [N], in nats, and its rank [N]: how many tokens are likelier. Of tokens
        equally likely the one of the lower id counts as likelier, as in argmax.
    """
    logits = np.asarray(subject.predict(ids, positions), np.float32)
    logits[:, list(subject.tokenizer.special_ids)] = -np.inf
    found = logits[np.arange(len(wanted)), wanted]
    ranks = (logits > found[:, None]).sum(axis=1)
    tied = np.flatnonzero((logits >= found[:, None]).sum(axis=1) - ranks > 1)
    for row in tied:
        ranks[row] += (logits[row, : wanted[row]] == found[row]).sum()
    top = logits.max(axis=1)
    np.subtract(logits, top[:, None], out=logits)
    sums = np.exp(logits, out=logits).sum(axis=1, dtype=np.float64)
    return top.astype(np.float64) - found + np.log(sums), ranks


def batches_by_length(lengths: Sequence[int], *, most_rows: int) -> Iterator[Ids]:
    """Indices of rows of one length each, shortest first, so that no row needs padding.

    Args:
        most_rows: In one batch, beside the bound on its tokens.
    """
    of = np.asarray(lengths, np.int64)
    order = np.argsort(of, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        if len(group):
            n_rows = max(1, min(most_rows, TOKENS_PER_BATCH // max(1, int(of[group[0]]))))
            yield from (group[start : start + n_rows] for start in range(0, len(group), n_rows))
