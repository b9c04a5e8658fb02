"""Questions with one mask each, asked in batches of rows of one length."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.guesser import LOGITS_PER_BATCH, Guesser, batches_by_length, judged
from model.tokenizer import MASK


@dataclass(frozen=True, slots=True)
class Question:
    """A row of ids with a mask, and the token that it hides.

    Attributes:
        ids: Prefix and suffix included.
        column: Of the mask in `ids`.
    """

    ids: list[int]
    column: int
    wanted: int


def masked(subject: Guesser, ids: Sequence[int], column: int, wanted: int) -> Question:
    """A text with the token at `column` hidden; of a long one, the part around it."""
    start = min(max(0, column - subject.room // 2), max(0, len(ids) - subject.room))
    shown = list(ids[start : start + subject.room])
    shown[column - start] = subject.tokenizer.mask_id
    before = len(subject.tokenizer.prefix)
    return Question(subject.tokenizer.wrap(shown), before + column - start, wanted)


def blanks(subject: Guesser, sentences: Sequence[tuple[str, str]]) -> list[Question | None]:
    """Sentences with one `[MASK]` each, and the word it hides.

    None where the word is no single token in that place, or has no token.
    """
    encode = subject.tokenizer.encode_ids
    shown = encode([sentence for sentence, _ in sentences])
    whole = encode([sentence.replace(MASK, word) for sentence, word in sentences])
    return [_blank(subject, *pair) for pair in zip(shown, whole, strict=True)]


def _blank(subject: Guesser, shown: list[int], whole: list[int]) -> Question | None:
    """The question of a sentence, if hiding one token of the whole makes what is shown."""
    column = shown.index(subject.tokenizer.mask_id)
    hidden = whole[column] if column < len(whole) else subject.tokenizer.unknown_id
    if hidden in subject.tokenizer.special_ids:
        return None
    if shown != [*whole[:column], subject.tokenizer.mask_id, *whole[column + 1 :]]:
        return None
    return masked(subject, whole, column, hidden)


def ask(
    subject: Guesser, questions: Sequence[Question]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The loss, in nats, and the rank of each wanted token; see `judged`."""
    losses, ranks = np.zeros(len(questions)), np.zeros(len(questions), np.int64)
    most_rows = max(1, LOGITS_PER_BATCH // subject.tokenizer.vocab_size)
    lengths = [len(question.ids) for question in questions]
    for batch in batches_by_length(lengths, most_rows=most_rows):
        asked = [questions[i] for i in batch]
        ids = np.array([question.ids for question in asked], np.int64)
        columns = np.array([question.column for question in asked], np.int64)
        positions = np.stack([np.arange(len(asked)), columns], axis=1)
        wanted = np.array([question.wanted for question in asked], np.int64)
        losses[batch], ranks[batch] = judged(subject, ids, positions, wanted)
    return losses, ranks
