"""Spans of texts that break software, for every kind of tokenizer."""

import pytest

from model.tokenizer import MASK, TRAINERS, Tokenizer
from tests.texts import FORMS, naughty, normalized

every_kind = pytest.mark.parametrize("kind", TRAINERS)


def assert_spans(tokenizer: Tokenizer, text: str) -> None:
    """In order, overlapping only in a code point that has several pieces, covering what is seen."""
    spans, begin, end = tokenizer.encode(text).offsets, 0, 0
    for start, stop in spans:
        assert begin <= start < stop <= len(text), text
        assert start >= end - 1, text
        assert not text[end:start].strip(), text
        begin, end = start, stop
    if spans:
        assert not text[end:].strip(), text


@every_kind
def test_spans_of_naughty_texts_are_in_order_and_cover_all_that_is_no_space(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    for text in naughty():
        assert_spans(tokenizers[kind], text)
        assert_spans(tokenizers[kind], f"a {text} b")


@every_kind
@pytest.mark.parametrize("form", FORMS)
def test_spans_hold_in_every_normalisation_form(
    tokenizers: dict[str, Tokenizer], kind: str, form: str
) -> None:
    characters = normalized(form)
    for joint in (" ", "", "x"):
        assert_spans(tokenizers[kind], joint.join(characters))


@every_kind
@pytest.mark.parametrize("character", ["x", "é", "😀", "漢", "\u0301", "\x00"])
def test_a_hundred_thousand_characters_without_a_space_have_their_spans(
    tokenizers: dict[str, Tokenizer], kind: str, character: str
) -> None:
    assert_spans(tokenizers[kind], character * 100_000)


@every_kind
def test_a_mask_beside_a_naughty_text_is_one_token_where_it_stands(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    for text in naughty():
        encoded = tokenizer.encode(f"{text} {MASK}{text}")
        assert encoded.ids.count(tokenizer.mask_id) == 1, text
        start, stop = encoded.offsets[encoded.ids.index(tokenizer.mask_id)]
        assert stop == len(text) + 1 + len(MASK), text
        assert f"{text} {MASK}"[start:].strip() == MASK, text  # that of BPE takes spaces before it
