"""Work that takes longer than the event loop may stop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def off_the_loop(work: Callable[[], T], *, large: bool) -> T:
    """What `work` gives; in a thread if it is large, else here: a thread costs 0.1 ms."""
    return await asyncio.to_thread(work) if large else work()
