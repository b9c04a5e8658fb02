"""Texts in pieces: the same text as in one, and what cannot be read."""

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.corpus import LONGEST_HELD_OUT, Corpus, from_files, held_out_from, shipped
from model.streams import (
    PIECE_CHARACTERS,
    StreamedCorpus,
    dataset,
    sampled,
    streamed_files,
    text_of_files,
)

LONG = shipped().text[: 2 * PIECE_CHARACTERS + 1234]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Two files, one packed, of several pieces; one has no line end."""
    plain, packed = tmp_path / "one.txt", tmp_path / "two.txt.xz"
    plain.write_text(LONG)
    packed.write_bytes(lzma.compress(("é漢" * PIECE_CHARACTERS + "\r\n").encode(), preset=0))
    return [plain, packed]


def test_files_in_pieces_are_the_same_text_as_in_one(paths: list[Path]) -> None:
    whole, streamed = from_files(paths), streamed_files(paths)
    assert "".join(streamed.read()) == whole.text
    assert (streamed.name, streamed.licence) == (whole.name, whole.licence)
    assert (streamed.n_characters, streamed.sha256) == (whole.n_characters, whole.sha256)
    assert "".join(streamed.training()) == whole.split()[0]
    assert streamed.held_out() == whole.held_out()


def test_pieces_end_where_lines_end(paths: list[Path]) -> None:
    *pieces, _ = streamed_files(paths[:1]).read()
    assert len(pieces) == 2
    assert all(piece.endswith("\n") for piece in pieces)


def test_short_files_are_read_at_once_and_long_ones_in_pieces(
    paths: list[Path], tmp_path: Path
) -> None:
    assert isinstance(text_of_files(paths), Corpus)
    with (tmp_path / "long.txt").open("wb") as file:
        file.truncate(65 * 2**20)  # a hole: no disk is used
    assert isinstance(text_of_files([tmp_path / "long.txt"]), StreamedCorpus)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("bad.txt", b"caf\xe9", "bad.txt is not UTF-8: "),
        ("bad.xz", b"no xz at all", "bad.xz cannot be unpacked: "),
        ("cut.xz", lzma.compress(b"to be " * 99)[:-9], "cut.xz cannot be unpacked: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, data: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        list(streamed_files([tmp_path / name]).read())


def test_a_tenth_is_held_out_but_no_more_than_can_be_scored() -> None:
    assert held_out_from(1000) == 900
    assert held_out_from(100 * LONGEST_HELD_OUT) == 99 * LONGEST_HELD_OUT


def test_a_sample_is_spread_over_the_training_text() -> None:
    streamed = StreamedCorpus("x", lambda: iter(["ab", "cd"] * 50), "none")
    assert "".join(sampled(streamed, n_characters=200)) == ("abcd" * 50)[:180]
    assert "".join(sampled(streamed, n_characters=60)) == "".join((["ab", "cd"] * 45)[::3])


def test_a_column_of_a_parquet_file_is_a_text_line_by_line(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"sentence": ["to be", "", None, "or not"], "label": [1, 2, 3, 4]}
    path = tmp_path / "some.parquet"
    datasets.Dataset.from_dict(rows).to_parquet(path)
    found = dataset(str(path), column="sentence")
    assert "".join(found.read()) == "to be\nor not\n"
    assert "".join(found.read()) == "to be\nor not\n"
    with pytest.raises(ValueError, match="column='text'; one of: sentence, label"):
        dataset(str(path), column="text")


def test_a_data_set_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(ValueError, match=r"dataset '.*none.parquet' cannot be loaded: "):
        dataset(str(tmp_path / "none.parquet"), column="text")


def test_a_data_set_that_only_the_hub_has_is_one_clear_error_without_a_network(
    tmp_path: Path,
) -> None:
    pytest.importorskip("datasets")
    code = (
        "from model.streams import dataset\n"
        "try: dataset('nobody/nothing', column='text')\n"
        "except ValueError as error: print(error)\n"
    )
    # The library reads its settings once, when it is imported.
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | offline, capture_output=True, text=True
    )
    assert done.stdout.startswith("dataset 'nobody/nothing' cannot be loaded: "), done.stderr


def test_without_the_library_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as Python has it where it is missing
    with pytest.raises(ValueError, match=r"pip install 'maskwright\[datasets\]'"):
        dataset("some.parquet", column="text")
