"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from model.files import write_atomically


def test_a_replacement_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken" / "by a directory").mkdir(parents=True)
    with pytest.raises(OSError, match=r"taken cannot be written \(0.0 MiB\): "):
        write_atomically(tmp_path / "taken", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_reader_that_has_the_old_file_open_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
