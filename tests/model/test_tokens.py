"""Runs of token ids: rows across shards, and shards that are written once."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.corpus import Corpus, shipped
from model.streams import StreamedCorpus
from model.tokenizer import Tokenizer
from model.tokens import INDEX, Tokens, tokenised
from tests.model.conftest import examples

TEXT = shipped().text[:9000]


def streamed() -> StreamedCorpus:
    return StreamedCorpus("pieces", lambda: iter([TEXT[:4000], TEXT[4000:]]), "none")


@examples
@given(cuts=st.lists(st.integers(0, 40), max_size=5), n_tokens=st.integers(1, 40))
def test_rows_do_not_show_where_the_shards_are_cut(cuts: list[int], n_tokens: int) -> None:
    ids = np.arange(40, dtype=np.uint8)
    tokens = Tokens(np.split(ids, sorted(cuts)))
    starts = np.arange(40 - n_tokens + 1)
    assert len(tokens) == 40
    assert (tokens.rows(starts, n_tokens) == starts[:, None] + np.arange(n_tokens)).all()


def test_a_text_in_pieces_gives_the_ids_of_the_text_in_one(
    char_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    whole = tokenised(Corpus("x", TEXT, "none"), char_tokenizer)
    shards = tokenised(streamed(), char_tokenizer, cache=tmp_path, shard_tokens=1000)
    everything = np.array([0])
    assert len(shards) == len(whole) == 8100
    assert (shards.rows(everything, 8100) == whole.rows(everything, 8100)).all()
    (index,) = tmp_path.rglob(INDEX)
    assert json.loads(index.read_text()) == {
        "dtype": "uint8",  # the smallest that holds 66 ids
        "shards": [1000] * 8 + [100],
        "text": "pieces",
    }


def test_a_text_is_tokenised_once(char_tokenizer: Tokenizer, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def tell(characters: int, tokens: int) -> None:
        told.append((characters, tokens))

    tokenised(streamed(), char_tokenizer, cache=tmp_path, tell=tell)
    assert told == [(4000, 4000), (8100, 8100)]
    tokenised(streamed(), char_tokenizer, cache=tmp_path, tell=tell)
    assert len(told) == 2


def test_an_unfinished_directory_is_made_anew(char_tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenised(streamed(), char_tokenizer, cache=tmp_path)
    (index,) = tmp_path.rglob(INDEX)
    index.unlink()
    (index.parent / "ids-00000.bin").write_bytes(b"half")
    assert len(tokenised(streamed(), char_tokenizer, cache=tmp_path)) == 8100


def test_a_shard_that_was_cut_is_refused_by_its_path(
    char_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tokenised(streamed(), char_tokenizer, cache=tmp_path)
    (shard,) = tmp_path.rglob("*.bin")
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{shard} has 8,099 bytes, not 8,100; delete "):
        tokenised(streamed(), char_tokenizer, cache=tmp_path)
