"""A directory that is written whole or not at all."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_directory(out: Path, *, ours: Callable[[Path], bool], replace: bool) -> Iterator[Path]:
    """A scratch directory that becomes `out` if the block ends well.

    Args:
        ours: Whether a directory was written by this; nothing else is replaced.
        replace: Whether one that is there already may be.

    Raises:
        FileExistsError: `out` exists and `replace` is false, or it is none of this kind.
    """
    if out.exists() and not replace:
        raise FileExistsError(f"{out} exists; --force replaces it")
    if out.exists() and not ours(out):
        raise FileExistsError(f"{out} is not an export; --force replaces nothing else")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        directory = Path(scratch) / "written"
        directory.mkdir()
        yield directory
        if out.exists():
            out.replace(Path(scratch) / "replaced")  # goes with the scratch directory
        directory.replace(out)
