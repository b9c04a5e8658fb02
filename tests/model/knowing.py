"""Guessers that know some sentences by heart, or vectors, and nothing else."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from model.guesser import Guesser
from model.tokenizer import TRAINERS, Tokenizer


def tokenizer_of(*texts: str) -> Tokenizer:
    """A WordPiece vocabulary in which each word of the texts is one token."""
    return TRAINERS["wordpiece"](texts, vocab_size=4000)


def knowing(tokenizer: Tokenizer, sentences: Iterable[str], *, max_tokens: int = 32) -> Guesser:
    """Gives what completes a sentence it knows a logit of 20, less one for each before."""
    known = [tokenizer.wrap(ids) for ids in tokenizer.encode_ids(list(sentences))]

    def predict(ids: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.floating]:
        logits = np.zeros((len(positions), tokenizer.vocab_size), np.float32)
        for line, (row, column) in zip(logits, positions, strict=True):
            shown, confidence = ids[row].tolist(), 20.0
            assert shown[column] == tokenizer.mask_id
            for sentence in known:
                if [*sentence[:column], *sentence[column + 1 :]] == [
                    *shown[:column],
                    *shown[column + 1 :],
                ]:
                    line[sentence[column]] = confidence
                    confidence -= 1
        return logits

    def pool(ids: NDArray[np.int64], pooling: str) -> NDArray[np.floating]:
        """How often each token is there."""
        return np.stack([np.bincount(row, minlength=tokenizer.vocab_size) for row in ids]) * 1.0

    return Guesser(predict, pool, ("mean",), tokenizer, max_tokens)


def lines(*lines: str | Sequence[object]) -> str:
    """The text of a file: each a line, sequences with tabs between."""
    texts = (line if isinstance(line, str) else "\t".join(map(str, line)) for line in lines)
    return "".join(f"{text}\n" for text in texts)
