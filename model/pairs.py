"""Pairs of texts that mean the same, or that people scored: from TSV, JSONL or Parquet files."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Pairs:
    """Texts and their partners.

    Attributes:
        scores: From 0, unlike, to 1, alike; None where every pair means the same.
    """

    name: str
    sha256: str
    first: list[str]
    second: list[str]
    scores: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.first)


def pairs_of_file(path: Path) -> Pairs:
    """The pairs of a `.tsv`, `.jsonl` or `.parquet` file.

    A row's first two texts are a pair, and its first number, if there is one, their score: of an
    object or a record in the order of its fields. Scores of any range are mapped onto 0 to 1.

    Raises:
        ValueError: The kind is none of these, a row has no two texts, only some rows have a score,
            or there are fewer than two pairs.
    """
    if path.suffix not in _READERS:
        raise ValueError(f"pairs {path}: a name that ends in one of {', '.join(_READERS)}")
    pairs: list[tuple[str, str, float | None]] = []
    try:
        for number, row in enumerate(_READERS[path.suffix](path), start=1):
            pairs.append(_pair(row, where=f"{path}, row {number}"))
    except UnicodeDecodeError as cause:
        raise ValueError(f"{path} is not UTF-8: byte {cause.start}") from None
    if len(pairs) < 2:
        raise ValueError(f"{path} has {len(pairs)} pairs; at least 2 are wanted")
    given = [score for _, _, score in pairs if score is not None]
    if given and len(given) < len(pairs):
        raise ValueError(f"{path}: {len(given)} of {len(pairs)} pairs have a score; all or none")
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    first, second, _ = map(list, zip(*pairs, strict=True))
    scores = _scaled(given, path) if given else None
    return Pairs(path.name, sha256, first, second, scores)


def _pair(row: Iterable[Any], *, where: str) -> tuple[str, str, float | None]:
    values = list(row)
    texts = [value.strip() for value in values if isinstance(value, str) and value.strip()]
    numbers = [float(value) for value in values if isinstance(value, Real)]
    if len(texts) < 2:
        raise ValueError(f"{where} has {len(texts)} texts; two are wanted")
    if numbers and not isfinite(numbers[0]):
        raise ValueError(f"{where} has the score {numbers[0]}; a finite number is wanted")
    return texts[0], texts[1], numbers[0] if numbers else None


def _scaled(scores: list[float], path: Path) -> NDArray[np.float32]:
    lowest, highest = min(scores), max(scores)
    if lowest == highest:
        raise ValueError(f"{path}: every score is {lowest}; leave them out, or give different ones")
    return ((np.array(scores) - lowest) / (highest - lowest)).astype(np.float32)


def _tsv(path: Path) -> Iterator[Iterable[Any]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield [_number_or_text(field) for field in line.rstrip("\r\n").split("\t")]


def _number_or_text(field: str) -> float | str:
    try:
        return float(field)
    except ValueError:
        return field


def _jsonl(path: Path) -> Iterator[Iterable[Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as cause:
                raise ValueError(f"{path}, row {number} is no JSON: {cause.msg}") from None
            if not isinstance(row, dict | list):
                raise ValueError(f"{path}, row {number} is neither an object nor a list")
            yield row.values() if isinstance(row, dict) else row


def _parquet(path: Path) -> Iterator[Iterable[Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ModuleNotFoundError:
        raise ValueError(f"{path} needs pyarrow: pip install 'maskwright[bulk]'") from None
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                yield row.values()
    except ArrowInvalid as cause:
        raise ValueError(f"{path} cannot be read: {cause}") from None


_READERS = {".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _parquet}
