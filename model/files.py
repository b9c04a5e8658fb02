"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step, on the disk before it counts.

    Raises:
        OSError: It cannot be written; what was there before is untouched.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as cause:
        size = f"{len(data) / 2**20:,.1f} MiB"
        raise OSError(f"{path} cannot be written ({size}): {cause.strerror or cause}") from cause
    finally:
        unfinished.unlink(missing_ok=True)
