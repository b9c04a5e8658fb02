"""Runs of words that a file to measure with shares with the text to train on."""

import lzma
from pathlib import Path

import pytest

from model.corpus import Corpus
from model.overlap import Overlap, overlaps

LINE = "one two three four five six seven eight nine ten eleven"
TEXT = Corpus("x", f"{LINE.upper()}!\nsomething else\n" * 20 + "zero " * 12, "none")


def test_lines_and_runs_that_are_in_the_text_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text(f"It says: {LINE}.\n{' '.join(reversed(LINE.split()))}\nshort\n")
    assert overlaps(TEXT, [path]) == [Overlap(path, lines=3, long_lines=2, lines_met=1, runs_met=2)]


def test_the_part_to_score_on_counts_too_and_files_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "test.txt.xz"
    path.write_bytes(lzma.compress(b"zero zero zero zero zero zero zero zero zero zero\n"))
    (found,) = overlaps(TEXT, [path])
    assert (found.lines_met, found.runs_met) == (1, 1)


def test_a_run_does_not_span_lines(tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text("one two three four five\nsix seven eight nine ten\n")
    assert overlaps(TEXT, [path])[0].long_lines == 0


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [("a.txt", b"caf\xe9 ", "is not UTF-8: byte 3"), ("a.xz", b"no", "cannot be unpacked: ")],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"^{tmp_path / name} {said}"):
        overlaps(TEXT, [tmp_path / name])
