"""Sends requests of one kind at a rate, from a process of its own; prints what became of them.

`python -m tests.chaos.load PORT RATE SECONDS FILE`, where FILE has the requests' bodies, a JSON
list; a RATE of 0 sends from 16 connections as fast as answers come.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from tests.chaos.client import Client, Reply, closed_loop, open_loop, post
from tests.chaos.texts import forever


async def send(port: int, rate: float, seconds: float, bodies: list[object]) -> list[Reply]:
    client, requests = Client(port), forever([post("/embed", body) for body in bodies])
    begun = time.perf_counter()
    if rate:
        return await open_loop(client, requests, rate=rate, seconds=seconds)
    return await closed_loop(
        client, requests, n_connections=16, until=lambda: time.perf_counter() - begun > seconds
    )


def main() -> None:
    port, rate, seconds, file = sys.argv[1:]
    bodies = json.loads(Path(file).read_text())
    replies = asyncio.run(send(int(port), float(rate), float(seconds), bodies))
    sys.stdout.write(json.dumps([[r.status, r.seconds, r.lost] for r in replies]))


if __name__ == "__main__":
    main()
