"""Scores: held-out masked loss and top-1, on windows and masks that never change.

Protocol, version 1. Windows: the held-out text cut into consecutive windows, the remainder
dropped. Masks: `numpy.random.default_rng(20240).random((draws, windows, length)) < 0.15`; a masked
token is always shown as [MASK]. Score: cross-entropy over the vocabulary without its special
tokens, and top-1 accuracy, each averaged over every masked token of every draw. Special tokens
in the text, such as [UNK] for a character that training never showed, are not masked.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.checkpoint import load_checkpoint
from model.corpus import Corpus, from_files, shipped
from model.encoder import Encoder
from model.tokenizer import Tokenizer

SEED, MASK_RATE, DRAWS = 20240, 0.15, 4
ROWS_PER_BATCH = 256


@dataclass(frozen=True)
class Score:
    """What an encoder reached on held-out text.

    Attributes:
        loss: Nats per masked token.
        accuracy: Share of masked tokens whose likeliest guess is right.
        n_masked: Tokens scored.
    """

    loss: float
    accuracy: float
    n_masked: int

    def __str__(self) -> str:
        return f"loss {self.loss:.4f} nats  top-1 {self.accuracy:.4f}  ({self.n_masked:,} tokens)"


@torch.no_grad()
def held_out_score(
    encoder: Encoder,
    ids: NDArray[np.int64],
    *,
    tokenizer: Tokenizer,
    length: int,
    draws: int = DRAWS,
    max_windows: int | None = None,
) -> Score:
    """Score `encoder` on a held-out run of ids, in windows of `length` tokens of text.

    Raises:
        ValueError: There is less text than one window, the encoder takes shorter rows, or the
            masks meet no token.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}; at least 1")
    windows = windows_of(ids, encoder=encoder, tokenizer=tokenizer, length=length)
    masks = np.random.default_rng(SEED).random((draws, *windows.shape)) < MASK_RATE
    masks &= ~np.isin(windows, list(tokenizer.special_ids))
    if max_windows is not None:
        windows, masks = windows[:max_windows], masks[:, :max_windows]
    n_masked = int(masks.sum())
    if not n_masked:
        raise ValueError(f"the masks meet none of the {len(ids)} tokens of the held-out text")
    was_training = encoder.training
    encoder.eval()
    total, right = 0.0, 0
    for mask in masks:
        for start in range(0, len(windows), ROWS_PER_BATCH):
            part = slice(start, start + ROWS_PER_BATCH)
            loss, hits = _score_rows(encoder, windows[part], mask[part], tokenizer)
            total, right = total + loss, right + hits
    encoder.train(was_training)
    return Score(total / n_masked, right / n_masked, n_masked)


def windows_of(
    ids: NDArray[np.int64], *, encoder: Encoder, tokenizer: Tokenizer, length: int
) -> NDArray[np.int64]:
    """Consecutive windows of `length` ids, the remainder dropped.

    Raises:
        ValueError: There is less text than one window, or the encoder takes shorter rows.
    """
    n_row, limit = length + tokenizer.n_wrap, encoder.config.max_tokens
    if length < 1:
        raise ValueError(f"windows of {length} tokens; at least 1")
    if n_row > limit:
        raise ValueError(f"windows of {length} make rows of {n_row} tokens; at most {limit}")
    if len(ids) < length:
        raise ValueError(f"the held-out text has {len(ids)} tokens; a window takes {length}")
    return ids[: len(ids) // length * length].reshape(-1, length)


def _score_rows(
    encoder: Encoder, rows: NDArray[np.int64], mask: NDArray[np.bool_], tokenizer: Tokenizer
) -> tuple[float, int]:
    """(summed loss, right guesses) over the masked tokens of some windows."""
    shown = np.where(mask, tokenizer.mask_id, rows)
    n_prefix = len(tokenizer.prefix)
    ids = np.pad(shown, ((0, 0), (n_prefix, len(tokenizer.suffix))))
    ids[:, :n_prefix] = tokenizer.prefix
    ids[:, n_prefix + rows.shape[1] :] = tokenizer.suffix
    row, column = np.nonzero(mask)
    hidden = encoder(torch.from_numpy(ids), torch.full((len(ids),), ids.shape[1]))
    positions = torch.from_numpy(np.stack([row, column + n_prefix], axis=1))
    logits = encoder.logits(hidden, positions).double()
    logits[:, list(tokenizer.special_ids)] = -torch.inf
    targets = torch.from_numpy(rows[mask])
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    return loss.item(), int((logits.argmax(dim=1) == targets).sum())


def _corpus(summary: Mapping[str, Any], data: Sequence[Path] | None) -> Corpus:
    """The text to score: the given files, else the shipped text if the run was trained on it."""
    if data:
        return from_files(data)
    corpus, trained_on = shipped(), summary.get("corpus", {})
    if trained_on.get("sha256", corpus.sha256) != corpus.sha256:
        raise ValueError(f"the run was trained on {trained_on['name']}; give its text with --data")
    return corpus


def main(arguments: list[str] | None = None) -> int:
    """The command `maskwright-evaluate`."""
    parser = argparse.ArgumentParser(
        prog="maskwright-evaluate",
        description="Held-out masked loss and top-1 of a checkpoint, on windows and masks that "
        "never change.",
    )
    parser.add_argument("checkpoint", type=Path, help="a run's directory or checkpoint file")
    parser.add_argument("--data", type=Path, nargs="+", help="text files; the last tenth is scored")
    parser.add_argument("--length", type=int, help="tokens in a window (64, or what fits)")
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"mask draws ({DRAWS})")
    options = parser.parse_args(arguments)
    try:
        checkpoint = load_checkpoint(options.checkpoint)
        corpus = _corpus(checkpoint.summary, options.data)
        ids = checkpoint.tokenizer.encode_corpus(corpus.split()[1])
        longest = checkpoint.config.max_tokens - checkpoint.tokenizer.n_wrap
        score = held_out_score(
            checkpoint.encoder,
            ids,
            tokenizer=checkpoint.tokenizer,
            length=min(64, longest) if options.length is None else options.length,
            draws=options.draws,
        )
    except (ValueError, OSError) as error:
        print(f"maskwright-evaluate: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    print(score)  # noqa: T201 the command's output
    return 0


if __name__ == "__main__":
    sys.exit(main())
