"""Clients that leave at random points, and clients that are slow on purpose."""

import asyncio
import contextlib
import random
import shutil
import subprocess
import time

from tests.chaos.client import Client, percentile, post
from tests.chaos.figures import (
    Figure,
    at_least,
    at_most,
    metric,
    n_descriptors,
    n_threads,
    settled,
)
from tests.chaos.servers import server_process
from tests.chaos.texts import pieces
from tests.service.conftest import Server


def disconnects(*, full: bool) -> list[Figure]:
    """Clients that leave in the head, in the body, while they wait, and while they are answered."""
    n = 10_000 if full else 500
    with server_process() as server:
        pid = server.process.pid
        asyncio.run(_leave(server, 200, seed=0))
        settled(lambda: metric(server.url, "http_connections"), 1)
        before = n_descriptors(pid), n_threads(pid)
        asyncio.run(_leave(server, n, seed=1))
        name = f"{n} clients that leave"
        open_ = settled(lambda: metric(server.url, "http_connections"), 1)
        in_flight = settled(lambda: metric(server.url, "http_requests_in_flight"), 1)
        found = [
            at_most(name, "connections left, the one that asks included", open_, 1),
            at_most(name, "requests in flight, the one that asks included", in_flight, 1),
            at_most(name, "texts that wait", metric(server.url, "queue_depth"), 0),
            at_most(name, "descriptors, more", n_descriptors(pid) - before[0], 5),
            at_most(name, "threads, more", n_threads(pid) - before[1], 5),
            Figure(
                name,
                "texts dropped before they ran",
                f"{metric(server.url, 'cancelled_total'):.0f}",
            ),
        ]
        reply = asyncio.run(_one(server))
        found.append(at_least(name, "a good request is answered", float(reply == 200), 1))
        server.stop()
    return found


async def _one(server: Server) -> int | None:
    client = Client(int(server.url.rpartition(":")[2]))
    reply = await client.ask(post("/embed", {"inputs": "to be"}))
    client.close()
    return reply.status


async def _leave(server: Server, n: int, *, seed: int) -> None:
    port, chosen = int(server.url.rpartition(":")[2]), random.Random(seed)
    texts = pieces(200, longest=60, seed=seed)
    room = asyncio.Semaphore(64)

    async def one() -> None:
        inputs = chosen.sample(texts, chosen.randint(1, 30))
        request = post(chosen.choice(("/embed", "/fill-mask", "/attention")), {"inputs": inputs})
        cut = chosen.choice((chosen.randrange(len(request)), len(request)))
        pause, abrupt = chosen.random() * 0.02, chosen.random() < 0.5
        async with room:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request[:cut])
                await asyncio.sleep(pause)
                if abrupt:
                    writer.transport.abort()
                else:
                    writer.close()

    await asyncio.gather(*(one() for _ in range(n)))


KINDS = {
    "slow heads": ("-H",),
    "slow bodies": ("-B",),
    "slow readers": ("-X", "-w", "8", "-y", "16", "-n", "2", "-z", "16", "-k", "1"),
}


def slow(*, full: bool) -> list[Figure]:
    """slowhttptest's three attacks, beside a client that does no harm."""
    tool = shutil.which("slowhttptest")
    if tool is None:
        return [Figure("slow clients", "not run", "slowhttptest is not installed", "", not full)]
    found: list[Figure] = []
    for kind, flags in KINDS.items():
        with server_process() as server:
            usual = asyncio.run(_good(server, 4))
            # To read slowly: an answer larger than what the two kernels take over.
            path = "/openapi.json" if "-X" in flags else "/embed"
            command = [tool, *flags, "-c", "300", "-r", "100", "-i", "2", "-l", "16", "-p", "3",
                       "-u", server.url + path]  # fmt: skip
            begun = time.monotonic()
            attack = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            time.sleep(3)  # until all are connected
            meanwhile = asyncio.run(_good(server, 5))
            time.sleep(max(0.0, begun + 3 + 11 - time.monotonic()))
            found += [
                at_most(kind, "p99 of a good client, over the usual", meanwhile / usual, 2),
                at_most(kind, "of 300 still connected after 11 s",
                        max(0.0, metric(server.url, "http_connections") - 1), 0),
            ]  # fmt: skip
            attack.communicate(timeout=60)
            server.stop()
    return found


async def _good(server: Server, seconds: float) -> float:
    """The p99 of one client that asks again and again."""
    client, taken = Client(int(server.url.rpartition(":")[2])), []
    request, begun = post("/fill-mask", {"inputs": "to b[MASK]"}), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        reply = await client.ask(request)
        taken.append(reply.seconds if reply.status == 200 else 60.0)
        await asyncio.sleep(0.01)
    client.close()
    return percentile(taken, 0.99)
