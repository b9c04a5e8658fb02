"""A word embedding to begin with: a teacher's, in the encoder's width and at its scale.

Which words are alike takes most of a short training to learn, and any encoder that was trained for
long knows it.
"""

import numpy as np
from numpy.typing import NDArray

from model.teacher import Teacher
from model.tokenizer import Tokenizer

CONTINUES = "##"  # how a WordPiece begins that does not begin a word


def word_embedding(
    teacher: Teacher, tokenizer: Tokenizer, *, d_model: int, seed: int = 0
) -> NDArray[np.float32]:
    """Rows [V,d_model] that are alike where the teacher's are; NaN where it knows no such token.

    A token is the teacher's of that name, or the mean of those that its text falls into. What all
    have in common is taken off; of the rest the leading principal directions are kept, turned at
    random, so that each feature carries as much; each row gets the length of one of N(0, 1).
    """
    known = teacher.embedding
    found = np.full((tokenizer.vocab_size, known.shape[1]), np.nan)
    for token_id in set(range(tokenizer.vocab_size)) - tokenizer.special_ids:
        if ids := _theirs(teacher, tokenizer, token_id):
            found[token_id] = known[ids].mean(axis=0)
    there = ~np.isnan(found[:, 0])
    rows = found[there] - found[there].mean(axis=0)
    directions = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :d_model]
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(d_model, directions.shape[1])))[0]
    turned = rows @ directions @ turn.T
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    made = np.full((tokenizer.vocab_size, d_model), np.nan, np.float32)
    made[there] = turned / np.maximum(lengths, 1e-12) * d_model**0.5
    return made


def _theirs(teacher: Teacher, tokenizer: Tokenizer, token_id: int) -> list[int]:
    """The teacher's ids of one of our tokens."""
    token = tokenizer.token_str(token_id)
    if tokenizer.kind == "wordpiece" and (same := teacher.id_of(token)) is not None:
        return [same]
    return teacher.ids_of(token.removeprefix(CONTINUES).strip())
