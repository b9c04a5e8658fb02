"""Thousands of mixed requests at once, each compared with its answer alone."""

import asyncio
import json
import time
from collections import Counter

import numpy as np

from tests.chaos.client import Client, closed_loop, open_loop, percentile
from tests.chaos.figures import Figure, at_most, n_descriptors, n_threads, rss_mib
from tests.chaos.servers import server_process
from tests.chaos.texts import mixed, pieces
from tests.service.conftest import Server


def golden(*, full: bool) -> list[Figure]:
    """Mixed requests at 80 % of peak against references that were asked for one by one."""
    n = 20_000 if full else 1_000
    with server_process() as server:
        found = asyncio.run(_golden(server, n))
        server.stop()
    return found


async def _golden(server: Server, n: int) -> list[Figure]:
    client = Client(int(server.url.rpartition(":")[2]))
    requests = mixed(pieces(300, longest=50, seed=3))
    references = {request: (await client.ask(request)).body for request in requests}
    begun = time.perf_counter()
    warm = await closed_loop(
        client,
        iter(requests * 100),
        n_connections=16,
        until=lambda: time.perf_counter() - begun > 3,
    )
    peak = len(warm) / (time.perf_counter() - begun)
    asked = [requests[number * 7919 % len(requests)] for number in range(n)]
    statuses: list[int | None] = []
    worst = 0.0

    async def ask(request: bytes) -> None:
        nonlocal worst
        reply = await client.ask(request)
        statuses.append(reply.status)
        if reply.status == 200:
            worst = max(worst, _difference(references[request], reply.body))

    tasks, begun, rate = [], time.perf_counter(), 0.8 * peak
    for number in range(n):
        if (wait := begun + number / rate - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(ask(asked[number])))
    await asyncio.gather(*tasks)
    refused = statuses.count(429)
    failed = sum(status not in (200, 429) for status in statuses)
    name = f"{n} mixed requests at {rate:.0f}/s, 80 % of peak"
    return [
        at_most(name, "answers other than 200 and 429", failed, 0),
        Figure(name, "refused with 429", str(refused)),
        at_most(name, "largest relative difference to the answer alone", worst, 1e-4),
    ]


def _difference(reference: bytes, answer: bytes) -> float:
    """Of two answers: the largest difference of their numbers, over the largest or 1; or inf.

    An answer of another text has other tokens, other words or another shape.
    """
    if reference == answer:
        return 0.0
    one, other = json.loads(reference), json.loads(answer)
    if isinstance(one, list) and isinstance(one[0], dict):  # candidates: by token, close ones swap
        scores = {candidate["token"]: candidate["score"] for candidate in one}
        seen = {candidate["token"]: candidate["score"] for candidate in other}
        lowest = min(scores.values())
        return max(abs(scores.get(t, lowest) - seen.get(t, lowest)) for t in scores | seen)
    if isinstance(one, dict):
        if one["tokens"] != other["tokens"]:
            return float("inf")
        one, other = one["weights"], other["weights"]
    left, right = np.array(one), np.array(other)
    if left.shape != right.shape:
        return float("inf")
    return float(np.abs(left - right).max() / max(1.0, np.abs(left).max()))


def soak(*, full: bool) -> list[Figure]:
    """Requests of random lengths and sizes: memory stays, descriptors stay, latency stays."""
    n = 100_000 if full else 6_000
    with server_process() as server:
        found = asyncio.run(_soak(server, n))
        server.stop()
    return found


async def _soak(server: Server, n: int) -> list[Figure]:
    client = Client(int(server.url.rpartition(":")[2]))
    single = mixed(pieces(2000, longest=60, seed=5))
    several = _lists(400)
    requests = [several[i // 10 % len(several)] if i % 10 == 0 else single[i % len(single)]
                for i in range(n)]  # fmt: skip
    pid, rate, tenth = server.process.pid, 0.0, n // 10
    rss: list[float] = []
    p99: list[float] = []
    counts: list[tuple[int, int]] = []
    statuses: Counter[str] = Counter()
    for number in range(10):
        part = iter(requests[number * tenth : (number + 1) * tenth])
        if not rate:  # a tenth as fast as it goes, which warms it up and tells the rate
            begun = time.perf_counter()
            left = tenth

            def done() -> bool:
                nonlocal left
                left -= 1
                return left < 0

            replies = await closed_loop(client, part, n_connections=8, until=done)
            rate = 0.5 * len(replies) / (time.perf_counter() - begun)
        else:
            replies = await open_loop(client, part, rate=rate, seconds=tenth / rate)
        statuses.update(str(reply.status) for reply in replies)
        rss.append(rss_mib(pid))
        p99.append(percentile([reply.seconds for reply in replies], 0.99))
        counts.append((n_descriptors(pid), n_threads(pid)))
    name = f"soak of {n} requests at {rate:.0f}/s"
    failed = n - statuses["200"] - statuses["429"]
    grown, threads = rss[-1] - rss[1], counts[-1][1] - counts[1][1]
    return [
        at_most(name, f"answers other than 200 and 429 (of {dict(statuses)})", failed, 0),
        Figure(name, "connections that had idled too long, opened anew", str(client.n_stale)),
        at_most(name, "growth of memory after warm-up", grown, max(20, 0.05 * rss[1]), " MiB"),
        Figure(name, "memory", " ".join(f"{value:.0f}" for value in rss) + " MiB"),
        at_most(name, "p99 of the last tenth over the first at that rate", p99[-1] / p99[1], 1.2),
        Figure(name, "p99", " ".join(f"{1000 * value:.0f}" for value in p99) + " ms"),
        at_most(name, "descriptors, more", counts[-1][0] - counts[1][0], 5),
        at_most(name, "threads, more (the pool makes them as needed)", threads, 6),
    ]


def _lists(n: int) -> list[bytes]:
    from tests.chaos.client import post

    texts = pieces(2000, longest=60, seed=6)
    return [post("/embed", {"inputs": texts[i : i + 1 + i % 40]}) for i in range(0, n * 4, 4)]
