"""The memory of a long-running process: what is looked through for cycles, and what goes back."""

import contextlib
import ctypes
import gc
from collections.abc import Callable

COLLECT_EVERY = 20_000  # objects that were made and not dropped


def settle() -> None:
    """Keep Python's search for cycles away from what stays, and make it rarer.

    A request makes and drops some hundred objects, and a look at all that was ever loaded would
    come with every few requests: an eighth of the event loop's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


def give_back() -> None:
    """Return what was dropped to the system; the C library would keep it for itself."""
    gc.unfreeze()  # what has gone may have been among what was to stay
    settle()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
        trim(0)
