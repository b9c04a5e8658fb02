"""Long runs of token ids: in memory, or tokenised once into shards that are mapped into it."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.corpus import Corpus, Text, cache_directory
from model.files import write_atomically
from model.tokenizer import Tokenizer

SHARD_TOKENS = 2**25
INDEX = "tokens.json"
LAYOUT = "lines with suffixes"  # another one makes other shards


class Tokens:
    """A run of token ids, cut into shards.

    Args:
        shards: Their ids, of any integer type; memory-mapped arrays are read where rows are.
    """

    def __init__(self, shards: Sequence[NDArray[Any]]) -> None:
        self._shards = list(shards)
        self._ends = np.cumsum([len(shard) for shard in shards], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._shards else 0

    def rows(self, starts: NDArray[np.int64], n_tokens: int) -> NDArray[np.int64]:
        """`n_tokens` ids from each of `starts` on: int64 [len(starts), n_tokens]."""
        if len(self._shards) == 1:
            return self._shards[0][starts[:, None] + np.arange(n_tokens)].astype(np.int64)
        return np.stack([self._stretch(int(start), n_tokens) for start in starts])

    def _stretch(self, start: int, n_tokens: int) -> NDArray[np.int64]:
        found = np.empty(n_tokens, np.int64)
        shard, filled = int(np.searchsorted(self._ends, start, side="right")), 0
        while filled < n_tokens:
            at = start + filled - int(self._ends[shard]) + len(self._shards[shard])
            part = self._shards[shard][at : at + n_tokens - filled]
            found[filled : filled + len(part)] = part
            shard, filled = shard + 1, filled + len(part)
        return found


def tokenised(
    text: Text,
    tokenizer: Tokenizer,
    *,
    cache: Path | None = None,
    shard_tokens: int = SHARD_TOKENS,
    tell: Callable[[int, int], None] = lambda n_characters, n_tokens: None,
) -> Tokens:
    """The training part of `text` as ids: in memory, or for a streamed one in shards.

    Shards lie in `cache`, under a name made of the hashes of text and tokenizer, and are made
    once.

    Args:
        tell: Is told how many characters are done, and how many tokens they gave.
    """
    if isinstance(text, Corpus):
        return Tokens([np.concatenate(list(_encoded(text, tokenizer, tell)))])
    key = sha256(f"{LAYOUT} {text.sha256} {tokenizer.to_json()}".encode()).hexdigest()[:24]
    directory = (cache or cache_directory()) / "tokens" / key
    if not (directory / INDEX).exists():
        pieces = _encoded(text, tokenizer, tell)
        _write_shards(directory, pieces, name=text.name, shard_tokens=shard_tokens)
    return open_shards(directory)


def open_shards(directory: Path) -> Tokens:
    """The tokens that lie in `directory`, mapped.

    Raises:
        ValueError: A shard is missing or not as long as the index says.
    """
    index = json.loads((directory / INDEX).read_text())
    itemsize = np.dtype(index["dtype"]).itemsize
    shards = []
    for i, n_tokens in enumerate(index["shards"]):
        path = directory / _shard_name(i)
        found = path.stat().st_size if path.exists() else 0
        if found != n_tokens * itemsize:
            raise ValueError(
                f"{path} has {found:,} bytes, not {n_tokens * itemsize:,}; delete {directory} "
                "and the text is tokenised again"
            )
        shards.append(np.memmap(path, dtype=index["dtype"], mode="r"))
    return Tokens(shards)


def _encoded(
    text: Text, tokenizer: Tokenizer, tell: Callable[[int, int], None]
) -> Iterator[NDArray[Any]]:
    """The ids of each piece, in the smallest type that holds the vocabulary."""
    kind = np.min_scalar_type(tokenizer.vocab_size - 1)
    n_characters = n_tokens = 0
    for piece in text.training():
        ids = tokenizer.encode_corpus(piece).astype(kind)
        n_characters, n_tokens = n_characters + len(piece), n_tokens + len(ids)
        tell(n_characters, n_tokens)
        yield ids


def _write_shards(
    directory: Path, pieces: Iterator[NDArray[Any]], *, name: str, shard_tokens: int
) -> None:
    """All of them under another name first, so that runs begun at once do not meet halfway."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory.parent, prefix=".part-") as place:
        unfinished = Path(place) / directory.name
        unfinished.mkdir()
        _write_into(unfinished, pieces, name=name, shard_tokens=shard_tokens, told=directory)
        if not (directory / INDEX).exists():
            shutil.rmtree(directory, ignore_errors=True)  # someone has taken a part away
            with contextlib.suppress(OSError):  # another run was first
                unfinished.rename(directory)


def _write_into(
    directory: Path, pieces: Iterator[NDArray[Any]], *, name: str, shard_tokens: int, told: Path
) -> None:
    """Shards, and an index of them; `told` is where an error says that they were to lie."""
    lengths: list[int] = []
    waiting: list[NDArray[Any]] = []
    kind = "uint8"

    def write(ids: NDArray[Any]) -> None:
        try:
            with (directory / _shard_name(len(lengths))).open("wb") as file:
                file.write(ids.data)  # numpy's own tofile misses a disk that fills at the end
        except OSError as cause:
            raise OSError(f"{told} cannot take the tokens of {name}: {cause}") from cause
        lengths.append(len(ids))

    for piece in pieces:
        kind = piece.dtype.name
        waiting.append(piece)
        if sum(map(len, waiting)) >= shard_tokens:
            ids = np.concatenate(waiting)
            while len(ids) >= shard_tokens:
                write(ids[:shard_tokens])
                ids = ids[shard_tokens:]
            waiting = [ids]
    if sum(map(len, waiting)):
        write(np.concatenate(waiting))
    index = {"dtype": kind, "shards": lengths, "text": name}
    write_atomically(directory / INDEX, json.dumps(index).encode())


def _shard_name(index: int) -> str:
    return f"ids-{index:05}.bin"
