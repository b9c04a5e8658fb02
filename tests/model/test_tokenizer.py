"""Tokenizers: ids, offsets and surfaces of each kind, and the mask in a text."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from model.corpus import shipped
from model.tokenizer import (
    END,
    MASK,
    PAD,
    SPECIALS,
    START,
    TRAINERS,
    UNKNOWN,
    Tokenizer,
    train_wordpiece,
)
from tests.model.conftest import examples

every_kind = pytest.mark.parametrize("kind", TRAINERS)

# A flag, a family (joined emoji), combining accents, Hangul, CJK, a ligature, a letter that grows
# when lowered, right-to-left, a control character, no-break and ideographic spaces.
ODD = [
    "🇫🇷",
    "👩‍👩‍👧",
    "e\u0301\u0323",
    "한글",
    "漢字",
    "ﬁ",
    "İ",
    "שלום",
    "\x00",
    "\xa0",
    "\u3000",
    "\r\n",
]
code_points = st.characters(exclude_categories=["Cs"])  # half a surrogate pair is no text
texts = st.lists(
    st.one_of(st.text(code_points, max_size=8), st.sampled_from([*ODD, "the ", "KING", " "])),
    max_size=8,
).map("".join)


def surfaces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [text[start:end] for start, end in tokenizer.encode(text).offsets]


@every_kind
@examples
@given(text=texts)
def test_a_tokenizer_survives_its_json(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    again = Tokenizer.from_json(tokenizers[kind].to_json())
    before, after = tokenizers[kind].encode(text), again.encode(text)
    assert (after.ids, after.offsets) == (before.ids, before.offsets)


@every_kind
def test_a_tokenizer_from_json_is_of_the_same_kind_and_specials(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    before = tokenizers[kind]
    after = Tokenizer.from_json(before.to_json())
    assert after.kind == before.kind == kind
    assert after.vocab_size == before.vocab_size
    assert (after.prefix, after.suffix) == (before.prefix, before.suffix)
    assert after.special_ids == before.special_ids


@every_kind
@examples
@given(text=texts)
def test_offsets_go_through_the_text_in_order(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    encoded = tokenizers[kind].encode(text)
    assert len(encoded.ids) == len(encoded.offsets)
    assert all(0 <= start < end <= len(text) for start, end in encoded.offsets)
    assert encoded.offsets == sorted(encoded.offsets)


@examples
@given(text=texts)
@example("e\u0301👩‍👩‍👧漢字")
def test_a_character_is_a_token_with_its_own_code_point_as_its_span(
    char_tokenizer: Tokenizer, text: str
) -> None:
    encoded = char_tokenizer.encode(text)
    assert encoded.offsets == [(i, i + 1) for i in range(len(text))]
    for token_id, character in zip(encoded.ids, text, strict=True):
        known = token_id != char_tokenizer.unknown_id
        assert not known or char_tokenizer.token_str(token_id) == character


def test_characters_of_the_training_text_are_known_and_others_are_not() -> None:
    tokenizer = TRAINERS["char"](["ab\n"])
    assert tokenizer.vocab_size == 3 + len("ab\n")
    known = tokenizer.encode("a\nb").ids
    assert len({*known, tokenizer.unknown_id}) == 4
    assert tokenizer.encode("aé漢").ids == [known[0], *[tokenizer.unknown_id] * 2]


@examples
@given(text=texts)
@example(" two  spaces\tand\n\nlines ")
def test_bpe_decodes_back_to_the_text_without_unknown_tokens(
    tokenizers: dict[str, Tokenizer], text: str
) -> None:
    tokenizer = tokenizers["bpe"]
    ids = tokenizer.encode(text).ids
    assert not tokenizer.special_ids.intersection(ids)
    backend = Backend.from_str(tokenizer.to_json())
    assert backend.decode(ids, skip_special_tokens=False) == text


@examples
@given(text=texts)
def test_the_tokens_of_bpe_cover_every_code_point(
    tokenizers: dict[str, Tokenizer], text: str
) -> None:
    offsets = tokenizers["bpe"].encode(text).offsets
    assert {i for start, end in offsets for i in range(start, end)} == set(range(len(text)))


def test_wordpiece_ignores_case_and_accents(tokenizers: dict[str, Tokenizer]) -> None:
    encode = tokenizers["wordpiece"].encode
    assert encode("The kíng").ids == encode("the KING").ids


def test_offsets_of_wordpiece_point_into_the_text_as_written(
    tokenizers: dict[str, Tokenizer],
) -> None:
    text = "👩‍👧 Thé  KÌNG, e\u0301"
    words = "".join(surfaces(tokenizers["wordpiece"], text))
    assert words.replace("\u0301", "") == "👩‍👧ThéKÌNG,e"


@every_kind
@pytest.mark.parametrize("written", [PAD, UNKNOWN, START, END, "[mask]", "[ MASK ]"])
def test_a_written_out_special_token_is_ordinary_text(
    tokenizers: dict[str, Tokenizer], kind: str, written: str
) -> None:
    tokenizer = tokenizers[kind]
    without = tokenizer.special_ids - {tokenizer.unknown_id}
    text = f"a {written} b"
    assert not without.intersection(tokenizer.encode(text).ids)
    assert "".join(surfaces(tokenizer, text)).replace(" ", "") == text.replace(" ", "")


@every_kind
@pytest.mark.parametrize(
    "text", ["[MASK]", "The [MASK] is", "ki[MASK]g", "[MASK][MASK]", "é[MASK]"]
)
def test_mask_in_a_text_is_the_mask_within_words_too(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = tokenizers[kind]
    encoded = tokenizer.encode(text)
    spans = [
        span
        for token_id, span in zip(encoded.ids, encoded.offsets, strict=True)
        if token_id == tokenizer.mask_id
    ]
    assert len(spans) == text.count(MASK)
    assert all(text[start:end].strip() == MASK for start, end in spans)


def test_only_the_mask_of_bpe_takes_the_space_before_it(tokenizers: dict[str, Tokenizer]) -> None:
    assert surfaces(tokenizers["bpe"], "a [MASK] b") == ["a", " [MASK]", " b"]
    assert surfaces(tokenizers["char"], "a [MASK] b") == ["a", " ", "[MASK]", " ", "b"]
    assert surfaces(tokenizers["wordpiece"], "a [MASK] b") == ["a", "[MASK]", "b"]


@every_kind
def test_the_tokens_around_a_mask_are_those_of_the_texts_around_it(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    encode = tokenizers[kind].encode
    ids = encode("My lord [MASK], the king").ids
    before = encode("My lord" if kind == "bpe" else "My lord ").ids
    assert ids == [*before, tokenizers[kind].mask_id, *encode(", the king").ids]


@every_kind
def test_only_tokenizers_of_words_wrap_a_text(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    wrapped = tokenizer.wrap([7, 8])
    assert wrapped == [*tokenizer.prefix, 7, 8, *tokenizer.suffix]
    assert tokenizer.n_wrap == len(wrapped) - 2 == (0 if kind == "char" else 2)
    assert {*tokenizer.prefix, *tokenizer.suffix} <= tokenizer.special_ids


@every_kind
def test_encoding_adds_no_prefix_and_no_suffix(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    assert tokenizer.encode("").ids == []
    assert not {*tokenizer.prefix, *tokenizer.suffix}.intersection(tokenizer.encode("a").ids)


@every_kind
def test_a_corpus_has_the_ids_of_its_lines_in_order_each_that_is_not_blank_with_the_suffix(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer, text = tokenizers[kind], shipped().text[:3000]
    assert "\n\n" in text
    expected = []
    for line in text.splitlines(keepends=True):
        expected += tokenizer.encode(line).ids
        expected += tokenizer.suffix if line != "\n" else []
    assert tokenizer.encode_corpus(text).tolist() == expected


@examples
@given(text=st.lists(st.one_of(texts, st.sampled_from([MASK, "\n", "\U00010000"]))).map("".join))
@example("To be,\r\nor\x0bnot\u2028to\x85be\n\n")
@example("漢\U0010ffff[MASK]\n[MA\nSK]")
def test_a_corpus_of_characters_has_the_ids_of_the_text_whole(
    char_tokenizer: Tokenizer, text: str
) -> None:
    assert char_tokenizer.encode_corpus(text).tolist() == char_tokenizer.encode(text).ids


@every_kind
def test_a_corpus_of_nothing_has_no_ids(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    assert tokenizers[kind].encode_corpus("").shape == (0,)


@every_kind
def test_a_target_has_the_tokens_of_its_surface(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    (found,) = tokenizer.target_ids("e")
    assert tokenizer.token_str(found) == "e"
    several = tokenizer.target_ids("kingly")
    assert len(several) > 1
    assert tokenizer.decode(several) == "kingly"


@every_kind
@pytest.mark.parametrize("surface", ["", MASK, f"a{MASK}", "[UNK]漢"])
def test_what_has_a_part_without_a_token_is_no_target(
    tokenizers: dict[str, Tokenizer], kind: str, surface: str
) -> None:
    if kind == "bpe" and MASK not in surface:
        assert tokenizers[kind].target_ids(surface) == tuple(tokenizers[kind].encode(surface).ids)
    else:
        assert tokenizers[kind].target_ids(surface) == ()


def test_a_token_that_is_some_bytes_of_a_character_is_partial(
    tokenizers: dict[str, Tokenizer],
) -> None:
    bpe = tokenizers["bpe"]
    assert all(bpe.is_partial(piece) for piece in bpe.encode("漢").ids)
    assert not any(bpe.is_partial(piece) for piece in bpe.encode("king [MASK]").ids)
    assert not any(tokenizers["char"].is_partial(i) for i in range(60))


def test_a_whole_replacement_character_is_not_partial() -> None:
    tokenizer = TRAINERS["bpe"](["\ufffd" * 50], vocab_size=400)
    (whole,) = tokenizer.encode("\ufffd").ids
    assert not tokenizer.is_partial(whole)


@every_kind
@examples
@given(text=st.text(max_size=40))
def test_spans_are_in_order_and_cover_all_that_is_no_space(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    spans = tokenizers[kind].encode(text).offsets
    covered = set()
    for (start, stop), (before, end) in zip(spans, [(0, 0), *spans], strict=False):
        assert before <= start < stop <= len(text)
        assert start >= end - 1  # pieces of one code point share it
        covered |= set(range(start, stop))
    if spans:
        assert {i for i, c in enumerate(text) if not c.isspace()} <= covered


@every_kind
@examples
@given(before=texts, after=texts)
def test_a_splice_changes_nothing_but_its_span(
    tokenizers: dict[str, Tokenizer], kind: str, before: str, after: str
) -> None:
    tokenizer, text = tokenizers[kind], before + MASK + after
    span = (len(before), len(before) + len(MASK))
    token_ids = tokenizer.target_ids("e")
    assert tokenizer.splice(text, span, token_ids) == before + "e" + after


def test_a_splice_in_wordpiece_keeps_the_case_and_spaces_of_the_rest(
    tokenizers: dict[str, Tokenizer],
) -> None:
    tokenizer, text = tokenizers["wordpiece"], "The  GREAT 漢 [MASK] !"
    start = text.index(MASK)
    spliced = tokenizer.splice(text, (start, start + len(MASK)), tokenizer.target_ids("The"))
    assert spliced == "The  GREAT 漢 the !"


def test_a_splice_of_a_continuation_joins_the_word_before(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["wordpiece"]
    continuation = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_str(i) == "##s")
    text = "The King [MASK] come"
    spliced = tokenizer.splice(text, (9, 15), [continuation])
    assert spliced == "The Kings come"


def test_a_splice_in_bpe_puts_the_tokens_own_space_for_the_masks(
    tokenizers: dict[str, Tokenizer],
) -> None:
    tokenizer, text = tokenizers["bpe"], "To be or [MASK] to be"
    encoded = tokenizer.encode(text)
    span = encoded.offsets[encoded.ids.index(tokenizer.mask_id)]
    assert tokenizer.splice(text, span, tokenizer.target_ids(" the")) == "To be or the to be"
    assert tokenizer.splice(text, span, tokenizer.target_ids("e")) == "To be ore to be"


def test_a_hash_in_a_token_of_characters_is_no_continuation() -> None:
    tokenizer = TRAINERS["char"](["# a"])
    assert tokenizer.splice("a [MASK]", (2, 8), tokenizer.target_ids("#")) == "a #"


def test_a_vocabulary_is_no_larger_than_asked(tokenizers: dict[str, Tokenizer]) -> None:
    assert tokenizers["bpe"].vocab_size == tokenizers["wordpiece"].vocab_size == 400


@every_kind
def test_training_twice_gives_the_same_tokenizer(kind: str) -> None:
    text = shipped().text[:3000]
    train = TRAINERS[kind]
    assert train([text], vocab_size=300).to_json() == train([text], vocab_size=300).to_json()


@pytest.mark.parametrize("damaged", ["", "no JSON", "{}", "[]", '{"model": {"type": "BPE"}}'])
def test_damaged_json_is_refused(damaged: str) -> None:
    with pytest.raises(ValueError, match=r"^tokenizer\.json cannot be read: "):
        Tokenizer.from_json(damaged)


@every_kind
def test_cut_off_json_is_refused(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Tokenizer.from_json(tokenizers[kind].to_json()[:-20])


def test_a_tokenizer_without_a_mask_is_refused_by_name(char_tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"lacks \[MASK\]$"):
        Tokenizer.from_json(char_tokenizer.to_json().replace(MASK, "[HIDE]"))


@every_kind
def test_every_special_token_of_a_tokenizer_has_an_id_of_its_own(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    n_specials = 3 if kind == "char" else len(SPECIALS)
    assert len(tokenizer.special_ids) == n_specials
    assert {tokenizer.pad_id, tokenizer.mask_id, tokenizer.unknown_id} <= tokenizer.special_ids


PLAYS = shipped().text[:20_000]


def test_words_that_are_forced_are_one_token_each_in_a_vocabulary_of_the_same_size() -> None:
    words = ["Tegucigalpa", "Bogot\u00e1", "New Delhi", "the"]
    plain = train_wordpiece([PLAYS], vocab_size=400)
    forced = train_wordpiece([PLAYS], vocab_size=400, words=words)
    assert forced.vocab_size == plain.vocab_size == 400
    assert surfaces(forced, "Tegucigalpa bogota") == ["Tegucigalpa", "bogota"]
    assert len(plain.encode("Tegucigalpa").ids) > 1
    assert len(forced.encode("New Delhi").ids) > 2
    again = train_wordpiece([PLAYS], vocab_size=400, words=words[::-1])
    assert again.to_json() == forced.to_json()


def test_forced_words_take_the_place_of_the_pieces_learnt_last_and_of_no_character() -> None:
    plain, forced = (
        json.loads(train_wordpiece([PLAYS], vocab_size=400, words=words).to_json())["model"][
            "vocab"
        ]
        for words in ([], ["lima", "oslo"])
    )
    assert {piece: i for piece, i in plain.items() if i < 398}.items() <= forced.items()
    assert {piece for piece, i in forced.items() if i >= 398} == {"lima", "oslo"}


def test_a_vocabulary_without_room_for_the_words_is_refused_with_the_numbers() -> None:
    words = [f"{a}{b}{c}" for a in "qxz" for b in "qxz" for c in "abcdefgh"]
    with pytest.raises(ValueError, match=r"^vocab_size=100 has room for \d+ of 72 words; give it"):
        train_wordpiece([PLAYS], vocab_size=100, words=words)


def test_the_alphabet_of_wordpiece_is_that_of_its_most_frequent_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = ["the cat sat on the mat", "the cat"] * 20 + ["\u6f22"] * 2
    assert surfaces(train_wordpiece(text, vocab_size=60), "\u6f22") == ["\u6f22"]
    monkeypatch.setattr("model.tokenizer.LARGEST_ALPHABET", 9)
    small = train_wordpiece(text, vocab_size=60)
    assert small.encode("\u6f22").ids == [small.unknown_id]
    assert small.unknown_id not in small.encode("the cat").ids
