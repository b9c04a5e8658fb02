"""How late the event loop runs what is due: whatever holds it up shows here first."""

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.1  # often enough to meet a stop of that length, for some 20 us a second


async def watch(
    observe: Callable[[float], None], *, interval_seconds: float = INTERVAL_SECONDS
) -> None:
    """Tell `observe` at each interval by how many seconds the loop was late; until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval_seconds
        await asyncio.sleep(interval_seconds)
        observe(max(0.0, loop.time() - due))
