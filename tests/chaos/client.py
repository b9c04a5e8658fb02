"""A client that costs little and tells exactly what became of each request."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Reply:
    """What became of a request.

    Attributes:
        status: Of the answer; None if none came.
        seconds: From when it was due to the answer's end.
        sent: Whether it was written to an open connection: then it is lost without an answer.
    """

    status: int | None = None
    seconds: float = 0.0
    sent: bool = False
    body: bytes = b""
    at: float = field(default_factory=time.perf_counter)

    @property
    def lost(self) -> bool:
        return self.sent and self.status is None


KEY = "a-key-that-no-log-may-hold"


def post(path: str, body: Any, *fields: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(content)}"]
    head += [f"Authorization: Bearer {KEY}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


class Client:
    """Connections to one port, kept while the server keeps them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.n_stale = 0
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes, *, due: float | None = None) -> Reply:
        """One request; never raises for what the network does."""
        reply = Reply()
        begun = due if due is not None else reply.at
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = self._kept() or await asyncio.open_connection("127.0.0.1", self.port)
            try:
                reply.sent = True
                writer.write(request)
                keep = await _read(reader, reply)
            except BaseException:
                writer.close()
                raise
            if keep:
                self._idle.append((reader, writer))
            else:
                writer.close()
        reply.seconds = time.perf_counter() - begun
        return reply

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection that the server has not closed, as it does with those that idle too long."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not (reader.at_eof() or reader.exception()):
                return reader, writer
            self.n_stale += 1
            writer.close()
        return None

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _read(reader: asyncio.StreamReader, reply: Reply) -> bool:
    """Read an answer; whether the connection goes on."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    reply.body = await reader.readexactly(length)
    reply.status = int(head[9:12])
    return b"connection: close" not in head


async def closed_loop(
    client: Client, requests: Iterator[bytes], *, n_connections: int, until: Callable[[], bool]
) -> list[Reply]:
    """So many clients, each sending its next request when it has its answer."""
    replies: list[Reply] = []

    async def one() -> None:
        while not until():
            reply = await client.ask(next(requests))
            reply.body = b""  # thousands of them would fill the memory
            replies.append(reply)
            if reply.status is None:
                await asyncio.sleep(0.01)  # a server that is gone is not asked in a tight loop

    await asyncio.gather(*(one() for _ in range(n_connections)))
    return replies


async def open_loop(
    client: Client,
    requests: Iterator[bytes],
    *,
    rate: float,
    seconds: float,
) -> list[Reply]:
    """So many requests a second, whatever becomes of them."""
    replies: list[Reply] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(request: bytes, due: float) -> None:
        reply = await client.ask(request, due=due)
        reply.body = b""
        replies.append(reply)

    begun = time.perf_counter()
    for number in range(round(rate * seconds)):
        due = begun + number / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(next(requests), due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return replies


def percentile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")
