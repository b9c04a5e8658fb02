"""The watch over the event loop."""

import asyncio
import time

from service.loop_lag import watch


async def test_what_holds_up_the_loop_is_seen_as_lag() -> None:
    seen: list[float] = []
    held_up = asyncio.Event()

    def observe(seconds: float) -> None:
        seen.append(seconds)
        if seconds >= 0.04:
            held_up.set()

    watching = asyncio.create_task(watch(observe, interval_seconds=0.001))
    await asyncio.sleep(0)  # the watch waits for its interval
    time.sleep(0.05)  # noqa: ASYNC251 holds up the loop, as slow code would
    await asyncio.wait_for(held_up.wait(), timeout=10)
    watching.cancel()
    assert all(seconds >= 0 for seconds in seen)
