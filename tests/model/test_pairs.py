"""Files of pairs: three kinds, one meaning, and what is wrong with a row by its number."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from model.pairs import pairs_of_file

ROWS = [("a cat", "one cat", 5.0), ("a dog", "the sea", 0.0), ("a hat", "a cap", 4.0)]


def tsv(path: Path, rows: list[tuple[object, ...]]) -> Path:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path


def jsonl_of_objects(path: Path, rows: list[tuple[object, ...]]) -> Path:
    names = ("anchor", "positive", "score")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=False))) + "\n" for row in rows))
    return path


def jsonl_of_lists(path: Path, rows: list[tuple[object, ...]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parquet_file(path: Path, rows: list[tuple[object, ...]]) -> Path:
    names = ("one", "other", "score")
    columns = {
        name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=False)
    }
    parquet.write_table(pyarrow.table(columns), path)
    return path


every_kind = pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.tsv", tsv),
        ("x.jsonl", jsonl_of_objects),
        ("x.jsonl", jsonl_of_lists),
        ("x.parquet", parquet_file),
    ],
)


@every_kind
def test_pairs_with_scores_are_read_and_their_scores_mapped_onto_0_to_1(
    tmp_path: Path, name: str, write: Callable[..., Path]
) -> None:
    pairs = pairs_of_file(write(tmp_path / name, ROWS))
    assert (pairs.first, pairs.second) == (
        ["a cat", "a dog", "a hat"],
        ["one cat", "the sea", "a cap"],
    )
    assert np.allclose(pairs.scores, [1.0, 0.0, 0.8])
    assert (pairs.name, len(pairs), len(pairs.sha256)) == (name, 3, 64)


@every_kind
def test_pairs_without_scores_have_none(
    tmp_path: Path, name: str, write: Callable[..., Path]
) -> None:
    pairs = pairs_of_file(write(tmp_path / name, [row[:2] for row in ROWS]))
    assert pairs.scores is None
    assert pairs.second[1] == "the sea"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "a,b", "a name that ends in one of .tsv, .jsonl, .parquet"),
        ("x.tsv", "a\tb\n", "has 1 pairs; at least 2"),
        ("x.tsv", "a\tb\nc\t3\n", "row 2 has 1 texts; two are wanted"),
        ("x.tsv", "a\tb\nc\td\t3\n", "1 of 2 pairs have a score; all or none"),
        ("x.tsv", "a\tb\t3\nc\td\t3\n", "every score is 3.0"),
        ("x.tsv", "a\tb\tnan\nc\td\t3\n", "row 1 has the score nan"),
        ("x.jsonl", '["a", "b"]\n{', "row 2 is no JSON"),
        ("x.jsonl", "3\n", "row 1 is neither an object nor a list"),
        ("x.parquet", "no parquet", "cannot be read"),
    ],
)
def test_a_file_that_gives_no_pairs_is_refused_with_the_reason(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        pairs_of_file(tmp_path / name)


def test_a_file_that_is_not_utf_8_is_refused_by_its_byte(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"caf\xe9\tb\n")
    with pytest.raises(ValueError, match="is not UTF-8: byte 3"):
        pairs_of_file(tmp_path / "x.tsv")
