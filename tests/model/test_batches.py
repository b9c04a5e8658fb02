"""Masked batches: exact shares, specials untouched, one seed one sequence."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from model.batches import MaskedBatch, Sampler
from model.config import Recipe
from model.corpus import shipped
from model.tokenizer import TRAINERS, Tokenizer
from model.tokens import Tokens

TEXT = shipped().text[:5000]
every_kind = pytest.mark.parametrize("kind", TRAINERS)


def recipe(**fields: Any) -> Recipe:
    return Recipe(**{"row_lengths": (16,), "batch_tokens": 320} | fields)


def sampler(tokenizer: Tokenizer, text: str = TEXT, *, seed: int = 0, **fields: Any) -> Sampler:
    tokens = Tokens([tokenizer.encode_corpus(text)])
    return Sampler(tokens, tokenizer=tokenizer, recipe=recipe(**fields), seed=seed)


def whole(batch: MaskedBatch) -> torch.Tensor:
    """The rows before masking."""
    rows = batch.ids.clone()
    rows[batch.positions[:, 0], batch.positions[:, 1]] = batch.targets
    return rows


def shown(batch: MaskedBatch) -> torch.Tensor:
    """What the encoder sees at the masked positions."""
    return batch.ids[batch.positions[:, 0], batch.positions[:, 1]]


@every_kind
@pytest.mark.parametrize("mask_rate", [0.01, 0.15, 0.3])
def test_the_share_of_masked_tokens_is_exact(
    tokenizers: dict[str, Tokenizer], kind: str, mask_rate: float
) -> None:
    batch = sampler(tokenizers[kind], mask_rate=mask_rate).draw(0)
    assert len(batch.targets) == round(320 * mask_rate)
    assert len(batch.positions.unique(dim=0)) == len(batch.positions)
    assert (shown(batch) == tokenizers[kind].mask_id).all()


def test_at_least_one_token_is_masked(char_tokenizer: Tokenizer) -> None:
    batch = sampler(char_tokenizer, row_lengths=(4,), batch_tokens=4, mask_rate=0.01).draw(0)
    assert len(batch.targets) == 1


@every_kind
def test_the_shares_of_random_and_kept_tokens_are_exact(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    batch = sampler(tokenizer, mask_rate=0.5, random_share=0.25, keep_share=0.5).draw(0)
    n_random, n_kept = 40, 80  # of 160
    is_mask, is_same = shown(batch) == tokenizer.mask_id, shown(batch) == batch.targets
    assert is_mask.sum() == 160 - n_random - n_kept
    # A random token is by chance the one that stood there.
    assert n_kept <= is_same.sum() <= n_kept + 10
    assert not set(tokenizer.special_ids).intersection(shown(batch)[~is_mask].tolist())


def test_a_random_token_is_any_ordinary_one_and_never_a_special_one() -> None:
    tokenizer = TRAINERS["char"](["ab\n"])  # as many specials as characters
    drawn = sampler(tokenizer, "ab\n" * 50, mask_rate=0.5, random_share=1.0).draw(0)
    assert set(shown(drawn).tolist()) == set(tokenizer.encode("ab\n").ids)


@every_kind
def test_special_tokens_are_never_masked(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    drawn = sampler(tokenizer, "To [MASK] 漢 be 字 or\n" * 200, mask_rate=0.3)
    for step in range(5):
        assert not tokenizer.special_ids.intersection(drawn.draw(step).targets.tolist())


@every_kind
def test_where_ordinary_tokens_are_too_few_for_the_rate_all_are_masked(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    batch = sampler(tokenizer, "e[MASK][MASK]\n" * 200, mask_rate=0.9).draw(0)
    is_special = torch.isin(whole(batch), torch.tensor([*tokenizer.special_ids]))
    assert len(batch.targets) == (~is_special).sum() < 0.9 * 320
    assert not tokenizer.special_ids.intersection(batch.targets.tolist())


@every_kind
def test_a_row_is_a_stretch_of_the_text_between_prefix_and_suffix(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode_corpus(TEXT)
    n_text = 16 - tokenizer.n_wrap
    stretches = {tuple(ids[i : i + n_text].tolist()) for i in range(len(ids) - n_text + 1)}
    batch = sampler(tokenizer).draw(0)
    assert batch.ids.shape == (20, 16)
    for row in whole(batch).tolist():
        text = tuple(row[len(tokenizer.prefix) : 16 - len(tokenizer.suffix)])
        assert text in stretches
        assert row == tokenizer.wrap(text)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@pytest.mark.parametrize(("share", "n_led"), [(0.0, 0), (0.5, 10), (1.0, 20)])
def test_a_share_of_the_rows_begins_where_a_line_does(
    tokenizers: dict[str, Tokenizer], kind: str, share: float, n_led: int
) -> None:
    tokenizer = tokenizers[kind]
    lines = "".join(f"Q{'e' * (i % 40)} to be or not to be, that is the rest\n" for i in range(90))
    (first,) = {tokenizer.encode(line).ids[0] for line in lines.splitlines()}
    ids = tokenizer.encode_corpus(lines).tolist()
    drawn = sampler(tokenizer, lines, line_start_share=share)
    begun = [whole(drawn.draw(step))[:, 1] == first for step in range(4)]
    # A row that begins anywhere does so at a line's start in one case of some 50.
    assert ids.count(first) == 90
    assert all(begins[:n_led].all() for begins in begun)
    assert all((~begins[n_led:]).sum() >= (20 - n_led) * 0.6 for begins in begun)


def test_a_row_for_which_no_line_begins_nearby_begins_anywhere(
    tokenizers: dict[str, Tokenizer],
) -> None:
    tokenizer = tokenizers["wordpiece"]
    text = "to be or not " * 600
    led, free = (sampler(tokenizer, text, line_start_share=share).draw(0) for share in (1.0, 0.0))
    assert equal(led, free)


def test_a_text_of_one_row_is_drawn_whole_wherever_its_lines_begin(
    tokenizers: dict[str, Tokenizer],
) -> None:
    tokenizer = tokenizers["wordpiece"]
    text = "to be\n" * 4
    length = len(tokenizer.encode_corpus(text)) + tokenizer.n_wrap
    batch = sampler(tokenizer, text, row_lengths=(length,), line_start_share=1.0).draw(0)
    assert whole(batch)[0].tolist() == tokenizer.wrap(tokenizer.encode_corpus(text).tolist())


def test_rows_that_begin_with_lines_need_a_vocabulary_that_ends_them(
    char_tokenizer: Tokenizer,
) -> None:
    said = "line_start_share=0.5 with a vocabulary of char; only bpe and wordpiece mark"
    with pytest.raises(ValueError, match=said):
        sampler(char_tokenizer, line_start_share=0.5)


def test_rows_reach_both_ends_of_the_text(char_tokenizer: Tokenizer) -> None:
    drawn = sampler(char_tokenizer, "abcdef", row_lengths=(5,), batch_tokens=5 * 20)
    rows = {tuple(row) for row in whole(drawn.draw(0)).tolist()}
    assert rows == {tuple(char_tokenizer.encode(text).ids) for text in ("abcde", "bcdef")}


def test_every_row_length_is_drawn_at_the_same_number_of_tokens(char_tokenizer: Tokenizer) -> None:
    drawn = sampler(char_tokenizer, row_lengths=(8, 16, 32, 32))
    shapes = [drawn.draw(step).ids.shape for step in range(60)]
    assert {tuple(shape) for shape in shapes} == {(40, 8), (20, 16), (10, 32)}
    # Named twice, drawn twice as often: 30 of 60 expected, with a standard deviation of 4.
    assert 15 < sum(shape[1] == 32 for shape in shapes) < 45


def test_a_batch_has_at_least_one_row(char_tokenizer: Tokenizer) -> None:
    assert sampler(char_tokenizer, batch_tokens=3).draw(0).ids.shape == (1, 16)


def equal(one: MaskedBatch, other: MaskedBatch) -> bool:
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(itertools.starmap(torch.equal, pairs))


@every_kind
def test_the_same_seed_draws_the_same_batches(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    one, other = (sampler(tokenizers[kind], row_lengths=(8, 16), seed=3) for _ in range(2))
    assert all(equal(one.draw(step), other.draw(step)) for step in range(5))


def test_a_batch_hangs_on_its_step_alone(char_tokenizer: Tokenizer) -> None:
    one, other = sampler(char_tokenizer), sampler(char_tokenizer)
    for step in range(3):
        one.draw(step)
    torch.manual_seed(1)
    assert equal(one.draw(3), other.draw(3))


def test_another_seed_or_another_step_gives_another_batch(char_tokenizer: Tokenizer) -> None:
    drawn = sampler(char_tokenizer)
    assert not equal(drawn.draw(0), sampler(char_tokenizer, seed=1).draw(0))
    assert not equal(drawn.draw(0), drawn.draw(1))


@pytest.mark.parametrize("n_parts", [1, 2, 3, 20])
def test_the_parts_of_a_batch_are_its_rows_with_their_masks(
    char_tokenizer: Tokenizer, n_parts: int
) -> None:
    batch = sampler(char_tokenizer).draw(0)
    parts = [batch.part(i, n_parts) for i in range(n_parts)]
    assert torch.equal(torch.cat([part.ids for part in parts]), batch.ids)
    assert torch.equal(torch.cat([whole(part) for part in parts]), whole(batch))
    assert sum(len(part.targets) for part in parts) == len(batch.targets)


@every_kind
def test_a_text_shorter_than_a_row_is_refused_with_both_lengths(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    n_text = 16 - tokenizer.n_wrap
    ids = np.full(n_text - 1, 9)
    with pytest.raises(ValueError, match=rf"has {n_text - 1} tokens; a row takes {n_text}"):
        Sampler(Tokens([ids]), tokenizer=tokenizer, recipe=recipe(row_lengths=(8, 16)), seed=0)
