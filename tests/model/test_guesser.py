"""The interface to what answers: losses and ranks, vectors, batches."""

import dataclasses

import numpy as np
import pytest
import torch

from model.guesser import batches_by_length, guesser, judged
from model.mixers import MIXERS
from model.pooling import POOLINGS
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder
from tests.model.knowing import knowing, tokenizer_of


def test_losses_are_of_the_softmax_without_special_tokens_and_ranks_count_the_likelier() -> None:
    tokenizer = tokenizer_of("one two three four five")
    subject, random = knowing(tokenizer, []), np.random.default_rng(0)
    logits = random.normal(0, 4, (50, tokenizer.vocab_size)).astype(np.float32)
    subject = dataclasses.replace(subject, predict=lambda ids, positions: logits.copy())
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), list(tokenizer.special_ids))
    wanted = random.choice(ordinary, 50)
    losses, ranks = judged(subject, np.zeros((1, 1), int), np.zeros((50, 2), int), wanted)
    for line, token, loss, rank in zip(logits.astype(float), wanted, losses, ranks, strict=True):
        shares = np.exp(line[ordinary])
        # 1e-6: exponentials in float32, each 1e-7 off.
        assert loss == pytest.approx(np.log(shares.sum()) - line[token], abs=1e-6)
        assert rank == (line[ordinary] > line[token]).sum()


def test_of_tokens_equally_likely_the_lower_id_comes_first() -> None:
    tokenizer = tokenizer_of("one two three four five")
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), list(tokenizer.special_ids))
    rows = np.full((len(ordinary), 3), tokenizer.mask_id)
    positions = np.stack([np.arange(len(ordinary)), np.ones(len(ordinary), int)], axis=1)
    losses, ranks = judged(knowing(tokenizer, []), rows, positions, ordinary)
    assert ranks.tolist() == list(range(len(ordinary)))
    assert losses == pytest.approx(np.log(len(ordinary)), rel=1e-12)


def test_batches_hold_every_row_once_in_rows_of_one_length_within_both_bounds() -> None:
    lengths = np.random.default_rng(0).choice([1, 5, 4096, 10_000], 300).tolist()
    batches = list(batches_by_length(lengths, most_rows=7))
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    for batch in batches:
        (length,) = {lengths[i] for i in batch}
        assert len(batch) <= {1: 7, 5: 7, 4096: 2, 10_000: 1}[length]
    assert list(batches_by_length([], most_rows=7)) == []


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_encoders_vectors_are_the_pooled_hidden_states(
    char_tokenizer: Tokenizer, mixer: str, pooling: str
) -> None:
    encoder = random_encoder(mixer, vocab_size=char_tokenizer.vocab_size)
    ids = torch.randint(0, char_tokenizer.vocab_size, (3, 9))
    hidden = encoder(ids)
    expected = POOLINGS[pooling](hidden, torch.ones(3, 9, dtype=torch.bool)).detach()
    found = guesser(encoder, char_tokenizer).pool(ids.numpy(), pooling)
    assert found == pytest.approx(expected.numpy())
