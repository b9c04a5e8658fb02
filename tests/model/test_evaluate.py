"""Scores: the protocol's windows and masks, and the command."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.corpus import shipped
from model.encoder import Encoder
from model.evaluate import (
    Score,
    held_out_score,
    pseudo_perplexity,
    score_by_length,
)
from model.evaluate import score as evaluated
from model.guesser import guesser
from model.mixers import MIXERS
from model.tokenizer import TRAINERS, Tokenizer
from tests.conftest import random_encoder

every_kind = pytest.mark.parametrize("kind", TRAINERS)
LENGTH = 8


@functools.cache
def text_ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """A held-out text of some fifty windows and a remainder."""
    ids = tokenizer.encode_corpus(shipped().split()[1][:2000])
    return ids[: LENGTH * 50 + 3]


def protocol_masks(draws: int, windows: int, length: int) -> NDArray[np.bool_]:
    return np.random.default_rng(20240).random((draws, windows, length)) < 0.15


def scored(tokenizer: Tokenizer, *, draws: int) -> NDArray[np.bool_]:
    """The protocol's masks but for those on the ends of lines."""
    windows = text_ids(tokenizer)[: 50 * LENGTH].reshape(50, LENGTH)
    return protocol_masks(draws, 50, LENGTH) & ~np.isin(windows, tokenizer.suffix)


def encoder_for(tokenizer: Tokenizer, mixer: str = "mhsa") -> Encoder:
    return random_encoder(mixer, vocab_size=tokenizer.vocab_size)


def score(tokenizer: Tokenizer, encoder: Encoder | None = None, **options: int) -> Score:
    made = encoder or encoder_for(tokenizer)
    options = {"length": LENGTH} | options
    return held_out_score(made, text_ids(tokenizer), tokenizer=tokenizer, **options)


@every_kind
@pytest.mark.parametrize("draws", [1, 4])
def test_the_masked_tokens_are_those_of_the_protocol(
    tokenizers: dict[str, Tokenizer], kind: str, draws: int
) -> None:
    found = score(tokenizers[kind], draws=draws)
    assert found.n_masked == scored(tokenizers[kind], draws=draws).sum()


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_the_ends_of_lines_in_a_text_are_shown_and_not_scored(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    ends = np.isin(text_ids(tokenizer)[: 50 * LENGTH], tokenizer.suffix)
    assert ends.any()
    assert scored(tokenizer, draws=4).sum() < protocol_masks(4, 50, LENGTH).sum()
    seen = []

    def predict(ids: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.floating]:
        seen.append(ids[:, 1:-1])
        return np.zeros((len(positions), tokenizer.vocab_size))

    subject = replace(guesser(encoder_for(tokenizer), tokenizer), predict=predict)
    evaluated(subject, text_ids(tokenizer), length=LENGTH, draws=1)
    (shown,) = seen
    assert (np.isin(shown.flatten(), tokenizer.suffix) == ends).all()


def test_fewer_windows_are_the_first_ones_under_the_same_masks(char_tokenizer: Tokenizer) -> None:
    found = score(char_tokenizer, max_windows=7)
    assert found.n_masked == protocol_masks(4, 50, LENGTH)[:, :7].sum()


@every_kind
def test_a_head_that_knows_nothing_scores_the_logarithm_of_the_ordinary_tokens(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    encoder = encoder_for(tokenizer)
    torch.nn.init.zeros_(encoder.head.weight)
    torch.nn.init.zeros_(encoder.head_bias)
    n_ordinary = tokenizer.vocab_size - len(tokenizer.special_ids)
    # The logits, all zero, are exact; the sum is taken in float64.
    assert score(tokenizer, encoder).loss == pytest.approx(math.log(n_ordinary), rel=1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
@every_kind
def test_the_score_is_that_of_each_window_by_itself(
    tokenizers: dict[str, Tokenizer], kind: str, mixer: str
) -> None:
    tokenizer = tokenizers[kind]
    encoder, ordinary = encoder_for(tokenizer, mixer), torch.ones(tokenizer.vocab_size)
    ordinary[list(tokenizer.special_ids)] = 0
    losses, hits, near = [], [], []
    windows = text_ids(tokenizer)[: 50 * LENGTH].reshape(50, LENGTH)
    for window, mask in zip(windows, scored(tokenizer, draws=1)[0], strict=True):
        shown = [
            tokenizer.mask_id if hide else i for i, hide in zip(window.tolist(), mask, strict=True)
        ]
        row = torch.tensor([tokenizer.wrap(shown)])
        hidden = encoder(row, torch.tensor([row.shape[1]]))
        for column in np.flatnonzero(mask):
            at = torch.tensor([[0, len(tokenizer.prefix) + column]])
            shares = encoder.logits(hidden, at)[0].double().exp() * ordinary
            losses.append(-(shares[window[column]] / shares.sum()).log().item())
            hits.append(int(shares.argmax()) == window[column])
            near.append(window[column] in shares.topk(5).indices)
    found = score(tokenizer, encoder, draws=1)
    # 1e-5: the encoder's float32 rounding differs between one row and a batch.
    assert found.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert found.accuracy == np.mean(hits)
    assert found.top5 == np.mean(near)


def test_a_masked_token_is_hidden_from_the_encoder(char_tokenizer: Tokenizer) -> None:
    # Fresh blocks are the identity, and this head names the token that stands at its position.
    config = encoder_for(char_tokenizer).config
    torch.manual_seed(0)
    copier = Encoder(type(config)(**vars(config) | {"tied_head": True}))
    with torch.no_grad():
        copier.final_norm.weight.fill_(100.0)
    ids = torch.from_numpy(text_ids(char_tokenizer)[None, :LENGTH])
    everywhere = torch.stack([torch.zeros(LENGTH, dtype=torch.int64), torch.arange(LENGTH)], dim=1)
    named = copier.logits(copier(ids, torch.tensor([LENGTH])), everywhere).argmax(dim=1)
    assert torch.equal(named, ids[0])
    # It answers one and the same token throughout: no better than the commonest, the space.
    assert score(char_tokenizer, copier).accuracy < 0.25


def test_unknown_characters_in_the_text_are_not_scored(char_tokenizer: Tokenizer) -> None:
    ids = char_tokenizer.encode_corpus("漢字 [MASK] be or not " * 20)
    found = held_out_score(
        encoder_for(char_tokenizer), ids, tokenizer=char_tokenizer, length=LENGTH
    )
    windows = ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)
    masks = protocol_masks(4, *windows.shape)
    special = (windows == char_tokenizer.unknown_id) | (windows == char_tokenizer.mask_id)
    assert found.n_masked == (masks & ~special).sum() < masks.sum()
    assert math.isfinite(found.loss)


def test_scoring_twice_gives_the_same_and_leaves_the_encoder_as_it_was(
    char_tokenizer: Tokenizer,
) -> None:
    encoder = random_encoder("mhsa", vocab_size=char_tokenizer.vocab_size, dropout=0.5).train()
    assert score(char_tokenizer, encoder) == score(char_tokenizer, encoder)
    assert encoder.training
    score(char_tokenizer, encoder.eval())
    assert not encoder.training


def test_batches_of_rows_do_not_change_the_score(char_tokenizer: Tokenizer) -> None:
    encoder = encoder_for(char_tokenizer)
    ids = np.tile(text_ids(char_tokenizer)[:LENGTH], 300)  # more than one batch takes
    found = held_out_score(encoder, ids, tokenizer=char_tokenizer, length=LENGTH, draws=1)
    assert found.n_masked == protocol_masks(1, 300, LENGTH).sum()


@every_kind
def test_windows_that_make_rows_too_long_are_refused_with_both_lengths(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    n_wrap = tokenizers[kind].n_wrap
    score(tokenizers[kind], length=32 - n_wrap)
    with pytest.raises(ValueError, match=f"windows of 32 make rows of {32 + n_wrap}|of 33 make"):
        score(tokenizers[kind], length=32 if n_wrap else 33)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"length": 0}, "windows of 0 tokens; at least 1"), ({"draws": 0}, "draws=0; at least 1")],
)
def test_a_score_of_nothing_is_refused(
    char_tokenizer: Tokenizer, options: dict[str, int], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        score(char_tokenizer, **options)


def test_less_text_than_a_window_is_refused_with_both_lengths(char_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="the held-out text has 7 tokens; a window takes 8"):
        held_out_score(
            encoder_for(char_tokenizer),
            text_ids(char_tokenizer)[:7],
            tokenizer=char_tokenizer,
            length=LENGTH,
        )


def test_a_text_without_any_token_to_mask_is_refused(char_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="the masks meet none of the 24 tokens"):
        held_out_score(
            encoder_for(char_tokenizer),
            np.full(24, char_tokenizer.unknown_id),
            tokenizer=char_tokenizer,
            length=LENGTH,
        )


@every_kind
def test_scores_by_length_are_those_of_the_protocol_at_each_length(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    subject = guesser(encoder_for(tokenizer), tokenizer)
    found = score_by_length(subject, text_ids(tokenizer), max_tokens=64)
    assert list(found) == [4, 8, 16, 32 - tokenizer.n_wrap]
    assert found[8] == score(tokenizer, draws=1, max_windows=8)


def test_pseudo_perplexity_masks_each_token_by_itself(char_tokenizer: Tokenizer) -> None:
    encoder, ids = encoder_for(char_tokenizer), text_ids(char_tokenizer)
    losses = []
    for window in ids[: 2 * LENGTH].reshape(2, LENGTH):
        for column in range(LENGTH):
            shown = torch.from_numpy(window.copy())[None]
            shown[0, column] = char_tokenizer.mask_id
            logits = encoder.logits(encoder(shown), torch.tensor([[0, column]]))[0].double()
            logits[list(char_tokenizer.special_ids)] = -torch.inf
            losses.append(-logits.log_softmax(dim=0)[window[column]].item())
    found = pseudo_perplexity(guesser(encoder, char_tokenizer), ids, length=LENGTH, max_windows=2)
    assert found == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
