"""Whether text to measure with is in the text to train on: runs of words that both have."""

import lzma
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.corpus import Text

RUN_WORDS = 10
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Overlap:
    """What a file shares with a text.

    Attributes:
        lines: In the file.
        long_lines: Those of at least `RUN_WORDS` words.
        lines_met: Those with a run of `RUN_WORDS` words that the text has as well.
        runs_met: Distinct such runs.
    """

    path: Path
    lines: int
    long_lines: int
    lines_met: int
    runs_met: int


def overlaps(text: Text, paths: Sequence[Path]) -> list[Overlap]:
    """What each file shares with both parts of `text`; case and punctuation do not count.

    Raises:
        ValueError: A file is not UTF-8, or an `.xz` is damaged.
    """
    files = [[list(_runs(line)) for line in _lines_of(path)] for path in paths]
    wanted = {run for lines in files for line in lines for run in line}
    met = set[str]()
    for piece in (*text.training(), text.held_out()):
        for line in piece.splitlines():
            met.update(run for run in _runs(line) if run in wanted)
    return [
        Overlap(
            path,
            lines=len(lines),
            long_lines=sum(map(bool, lines)),
            lines_met=sum(not met.isdisjoint(line) for line in lines),
            runs_met=len(met.intersection(run for line in lines for run in line)),
        )
        for path, lines in zip(paths, files, strict=True)
    ]


def _runs(line: str) -> Iterator[str]:
    words = _WORD.findall(line.lower())
    return (" ".join(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1))


def _lines_of(path: Path) -> list[str]:
    data = path.read_bytes()
    try:
        return (lzma.decompress(data) if path.suffix == ".xz" else data).decode().splitlines()
    except lzma.LZMAError as cause:
        raise ValueError(f"{path} cannot be unpacked: {cause}") from None
    except UnicodeDecodeError as cause:
        raise ValueError(f"{path} is not UTF-8: byte {cause.start}") from None
