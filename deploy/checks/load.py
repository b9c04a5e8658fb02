"""A bounded load of every kind of request, tallied by what the client itself saw."""

import asyncio
import itertools
import json
import random
import ssl
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

WORDS = ("to", "be", "or", "not", "that", "is", "the", "question", "nobler", "in", "mind")
TASKS = ("fill-mask", "embed", "attention")
CONNECTIONS = 24


@dataclass
class Tally:
    """What the client counted."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)  # (route, status class)
    codes: Counter[str] = field(default_factory=Counter)
    texts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (task, model)
    truncated: int = 0
    unexpected: list[str] = field(default_factory=list)


def a_text(chosen: random.Random) -> str:
    """One to twelve words with a mask."""
    words = chosen.choices(WORDS, k=chosen.randint(1, 12))
    words.insert(chosen.randrange(len(words) + 1), "[MASK]")
    return " ".join(words)


def a_request(chosen: random.Random, models: list[str]) -> tuple[str, dict[str, Any], int, str]:
    """(route, body, number of texts, model); one in ten is one that must be refused."""
    task, model, roll = chosen.choice(TASKS), chosen.choice(models), chosen.random()
    if roll < 0.02:
        return f"/{task}", {"inputs": 5}, 0, model  # 422
    if roll < 0.04:
        return f"/{task}", {"inputs": ""}, 0, model  # 400
    if roll < 0.06:
        return f"/{task}", {"inputs": ["a"] * 2000}, 0, model  # 413
    if roll < 0.08:
        return f"/{task}", {"inputs": "a [MASK]", "model": "another"}, 0, model  # 404
    if roll < 0.10:
        return "/nothing", {}, 0, model  # 404
    if roll < 0.13:
        texts = [a_text(chosen) for _ in range(chosen.randint(50, 200))]  # may fill the queue
        return "/embed", {"inputs": texts, "model": model}, len(texts), model
    if roll < 0.16:
        long = " ".join(a_text(chosen) for _ in range(20))  # cut
        return "/embed", {"inputs": long, "model": model}, 1, model
    texts = [a_text(chosen) for _ in range(chosen.choice((1, 1, 1, 4)))]
    body = texts[0] if len(texts) == 1 else texts
    return f"/{task}", {"inputs": body, "model": model}, len(texts), model


class Client:
    """One connection of HTTP/1.1, with little of its own to slow the measured side."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._port, self._tls = port, tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, route: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body)."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        reader, writer = self._streams
        content = json.dumps(body).encode()
        head = (
            f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
        answer = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return int(first.split()[1]), headers, answer

    def close(self) -> None:
        """Let the connection go."""
        if self._streams:
            self._streams[1].transport.abort()  # TLS would want another turn to say goodbye
            self._streams = None


async def drive(port: int, *, models: list[str], n_requests: int, seconds: float) -> Tally:
    """Send `n_requests` over at least `seconds`, some at once, and count the answers."""
    tally, numbers, begun = Tally(), itertools.count(), time.monotonic()
    chosen = random.Random(7)

    async def one() -> None:
        client = Client(port)
        while (number := next(numbers)) < n_requests:
            due = begun + seconds * number / n_requests
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            route, body, n_texts, model = a_request(chosen, models)
            _count(tally, route, await client.post(route, body), n_texts, model)
        client.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return tally


def _count(
    tally: Tally, route: str, answer: tuple[int, dict[str, str], bytes], n_texts: int, model: str
) -> None:
    status, headers, body = answer
    known = route if route != "/nothing" else "other"
    tally.answers[known, f"{status // 100}xx"] += 1
    if status == 200:
        tally.texts[route[1:], model] += n_texts
        cut = headers.get("x-truncated-inputs", "")
        tally.truncated += len(cut.split(",")) if cut else 0
    else:
        tally.codes[json.loads(body)["code"]] += 1
    if status >= 500:
        tally.unexpected.append(body.decode())
