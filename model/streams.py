"""Texts that do not fit the memory: read in pieces, anew for each use."""

import lzma
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from model.corpus import Text, from_files, held_out_from

PIECE_CHARACTERS = 2**18  # the tokenizer needs some 100 bytes a character while it works on them
LARGEST_IN_MEMORY = 64 * 2**20


@dataclass(frozen=True)
class StreamedCorpus(Text):
    """A text in pieces.

    Args:
        read: Gives the same pieces each time it is called. Lines are best left whole.
    """

    name: str
    read: Callable[[], Iterator[str]]
    licence: str

    def pieces(self) -> Iterator[str]:
        """All of it, as it is read."""
        return self.read()

    def training(self) -> Iterator[str]:
        """The part to train on."""
        left = held_out_from(self.n_characters)
        for piece in self.read():
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return

    def held_out(self) -> str:
        """The part to score on."""
        skip, kept = held_out_from(self.n_characters), []
        for piece in self.read():
            kept.append(piece[max(0, skip) :])
            skip -= len(piece)
        return "".join(kept)


def text_of_files(paths: Sequence[Path]) -> Text:
    """The texts of UTF-8 files (`.xz` is unpacked), one after another; long ones in pieces.

    Raises:
        ValueError: A file is not UTF-8, an `.xz` is damaged, or all are empty.
    """
    packed = [path.suffix == ".xz" for path in paths]
    # Text packs about five to one.
    n_bytes = sum(p.stat().st_size * (5 if xz else 1) for p, xz in zip(paths, packed, strict=True))
    if n_bytes <= LARGEST_IN_MEMORY:
        return from_files(paths)
    return streamed_files(paths)


def streamed_files(paths: Sequence[Path]) -> StreamedCorpus:
    """The same text as `from_files` gives, in pieces."""

    def read() -> Iterator[str]:
        for i, path in enumerate(paths):
            yield from chain(["\n"] if i else [], _pieces(path))

    return StreamedCorpus("+".join(path.name for path in paths), read, "not stated")


def _pieces(path: Path) -> Iterator[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            while piece := file.read(PIECE_CHARACTERS):
                yield piece + file.readline(PIECE_CHARACTERS)
    except (lzma.LZMAError, EOFError) as cause:
        raise ValueError(f"{path} cannot be unpacked: {cause}") from None
    except UnicodeDecodeError as cause:
        raise ValueError(f"{path} is not UTF-8: {cause.reason}") from None


def dataset(name: str, *, column: str, split: str = "train") -> StreamedCorpus:
    """A column of a data set of the Hugging Face `datasets` library, a row after another.

    Args:
        name: `NAME`, `NAME:CONFIG`, or the path of a .parquet, .jsonl, .json, .csv or .txt file.

    Raises:
        ValueError: `datasets` is not installed, the data set cannot be had, or it has no such
            column.
    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise ValueError(
            "--dataset needs the datasets library: pip install 'maskwright[datasets]'"
        ) from None
    rows: Any
    try:
        path = Path(name)
        if builder := _BUILDERS.get(path.suffix):
            rows = datasets.load_dataset(builder, data_files=str(path), split=split)
        else:
            rows = datasets.load_dataset(*name.split(":", 1), split=split)
    except Exception as cause:  # it raises whatever its backends do; the user is told
        raise ValueError(f"dataset {name!r} cannot be loaded: {cause}") from cause
    if column not in rows.column_names:
        raise ValueError(f"column={column!r}; one of: {', '.join(rows.column_names)}")

    def read() -> Iterator[str]:
        for batch in rows.select_columns([column]).iter(batch_size=1000):
            yield "".join(f"{text}\n" for text in batch[column] if text)

    return StreamedCorpus(name, read, rows.info.license or "not stated")


def sampled(text: Text, *, n_characters: int) -> Iterator[str]:
    """Pieces spread over the training text, about `n_characters` in all."""
    every = max(1, -(-held_out_from(text.n_characters) // n_characters))
    return (piece for i, piece in enumerate(text.training()) if i % every == 0)


_BUILDERS = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
    ".txt": "text",
}
