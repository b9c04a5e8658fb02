"""Runs of token ids: rows across shards, and shards that are written once."""

import json
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.corpus import Corpus, shipped
from model.streams import StreamedCorpus
from model.tokenizer import TRAINERS, Tokenizer
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


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Within it a longer file cannot be written, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [100, 5000])  # 5000: it fills within the last block
def test_a_full_disk_is_told_with_the_directory_and_leaves_no_index(
    char_tokenizer: Tokenizer, tmp_path: Path, room: int
) -> None:
    said = f"{tmp_path}/tokens/.* cannot take the tokens of pieces: "
    with pytest.raises(OSError, match=said), files_of_at_most(room):
        tokenised(streamed(), char_tokenizer, cache=tmp_path)
    assert not list(tmp_path.rglob(INDEX))
    assert len(tokenised(streamed(), char_tokenizer, cache=tmp_path)) == 8100


@pytest.mark.parametrize(("n_ids", "dtype"), [(256, "uint8"), (257, "uint16")])
def test_shards_are_of_the_smallest_type_that_holds_the_vocabulary(
    tmp_path: Path, n_ids: int, dtype: str
) -> None:
    text = "".join(chr(0x4E00 + i) for i in range(n_ids - 3))  # three ids are special
    tokenizer = TRAINERS["char"]([text])
    made = StreamedCorpus("x", lambda: iter([text[::-1]] * 10), "none")
    tokens = tokenised(made, tokenizer, cache=tmp_path)
    (index,) = tmp_path.rglob(INDEX)
    assert json.loads(index.read_text())["dtype"] == dtype
    assert tokens.rows(np.array([0]), 2).tolist() == [[n_ids - 1, n_ids - 2]]


def test_a_shard_that_is_missing_is_refused_by_its_path(
    char_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tokenised(streamed(), char_tokenizer, cache=tmp_path, shard_tokens=5000)
    shard = max(tmp_path.rglob("*.bin"))
    shard.unlink()
    with pytest.raises(ValueError, match=f"{shard} has 0 bytes, not 3,100; delete "):
        tokenised(streamed(), char_tokenizer, cache=tmp_path)


def test_runs_that_tokenise_at_once_get_the_same_tokens_and_leave_one_directory(
    char_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(tokenised, streamed(), char_tokenizer, cache=tmp_path) for _ in range(4)
        ]
        found = [job.result() for job in jobs]
    everything = [tokens.rows(np.array([0]), len(tokens)).tolist() for tokens in found]
    assert everything.count(everything[0]) == 4
    assert len(list((tmp_path / "tokens").iterdir())) == 1
