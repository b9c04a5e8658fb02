"""What an encoder would put at the masks of a text, for a reader to judge."""

import numpy as np
import torch
from numpy.typing import NDArray

from model.encoder import Encoder
from model.evaluate import MASK_RATE, SEED
from model.tokenizer import Tokenizer

LINE_END = "¶"


@torch.no_grad()
def filled(encoder: Encoder, row: NDArray[np.int64], *, tokenizer: Tokenizer) -> str:
    """A row of text with some tokens masked and guessed: `[right]` or `[wrong|what it was]`."""
    masked = np.random.default_rng(SEED).random(len(row)) < MASK_RATE
    masked &= ~np.isin(row, list(tokenizer.special_ids))
    ids = tokenizer.wrap(np.where(masked, tokenizer.mask_id, row).tolist())
    columns = np.flatnonzero(masked) + len(tokenizer.prefix)
    positions = torch.from_numpy(np.stack([np.zeros_like(columns), columns], axis=1))
    device = encoder.head_bias.device
    was_training = encoder.training
    encoder.eval()
    hidden = encoder(torch.tensor([ids], device=device))
    logits = encoder.logits(hidden, positions.to(device))
    encoder.train(was_training)
    logits[:, list(tokenizer.special_ids)] = -torch.inf
    guesses = dict(zip(np.flatnonzero(masked), logits.argmax(dim=1).tolist(), strict=True))
    return "".join(
        _shown(tokenizer, truth=int(token), guess=guesses.get(i), first=i == 0)
        for i, token in enumerate(row)
    )


def _shown(tokenizer: Tokenizer, *, truth: int, guess: int | None, first: bool) -> str:
    """One token as a reader sees it; word pieces get the spaces between words back."""
    if truth in tokenizer.suffix:
        return f" {LINE_END}"
    right = tokenizer.token_str(truth)
    space = "" if first or tokenizer.kind != "wordpiece" or right.startswith("##") else " "
    if guess is None:
        return space + right.removeprefix("##")
    said = tokenizer.token_str(guess)
    return f"{space}[{said}]" if guess == truth else f"{space}[{said}|{right}]"
