"""Texts out of files, a chunk at a time, and vectors into Parquet, a part at a time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

FORMATS = (".txt", ".jsonl", ".parquet")  # any other suffix is read as text


class BadInput(ValueError):
    """A file that cannot be read as what its name says."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text and where it stands: its file, and its line or row from 0."""

    file: str
    row: int
    text: str


def read_texts(files: Sequence[Path], *, column: str) -> Iterator[Text]:
    """The texts of all files, in order, without holding more than a piece of one.

    Args:
        column: The field of a JSON line, or the column of a Parquet file, that holds the text.

    Raises:
        BadInput: With the file and the line.
    """
    readers = {".jsonl": _json_lines, ".parquet": _parquet}
    for file in files:
        reader = readers.get(file.suffix)
        try:
            texts = reader(file, column) if reader else _lines(file)
            for row, text in enumerate(texts):
                if not isinstance(text, str):
                    raise BadInput(f"{file}, row {row}: {column!r} is not a text")
                yield Text(str(file), row, text)
        except UnicodeDecodeError as cause:
            raise BadInput(f"{file} is not UTF-8: {cause.reason}") from cause


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\r\n")


def _json_lines(file: Path, column: str) -> Iterator[object]:
    for row, line in enumerate(_lines(file)):
        try:
            yield json.loads(line)[column]
        except (ValueError, KeyError, TypeError) as cause:
            raise BadInput(f"{file}, line {row + 1}: no JSON object with {column!r}") from cause


def _parquet(file: Path, column: str) -> Iterator[object]:
    try:
        opened = pq.ParquetFile(file)
    except pa.ArrowInvalid as cause:
        raise BadInput(f"{file} is not a Parquet file") from cause
    with opened:
        names = opened.schema_arrow.names
        if column not in names:
            raise BadInput(f"{file} has no column {column!r}; there are: {', '.join(names)}")
        for batch in opened.iter_batches(columns=[column]):
            yield from batch.column(0).to_pylist()


def part_path(directory: Path, number: int) -> Path:
    """Where a part lies."""
    return directory / f"part-{number:06d}.parquet"


def write_part(
    path: Path,
    texts: Sequence[Text],
    vectors: NDArray[np.float32],
    *,
    empty: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
) -> None:
    """One part, whole or not at all: `file`, `row`, `truncated`, `vector` (null for no text)."""
    width = vectors.shape[1]
    values = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    table = pa.table(
        {
            "file": pa.array([text.file for text in texts]).dictionary_encode(),
            "row": pa.array([text.row for text in texts], pa.int64()),
            "truncated": pa.array(truncated),
            "vector": pa.FixedSizeListArray.from_arrays(values, width, mask=pa.array(empty)),
        }
    )
    unfinished = path.with_suffix(".unfinished")
    # Floats do not compress; what is not compressed is written and read fastest.
    pq.write_table(table, unfinished, compression="none", use_dictionary=["file"])
    unfinished.replace(path)


def rows_in(path: Path) -> int:
    """Rows of a part, from its footer."""
    n_rows: int = pq.read_metadata(path).num_rows
    return n_rows
