"""Load on an HTTP service: connections that each wait for their answer, or requests at a rate.

Closed loop: so many keep-alive connections, each with one request in flight. Open loop: requests at
Poisson times whatever the service does; latency counts from the time a request was due, so that a
service that stalls is charged for its queue.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

GRACE_SECONDS = 10.0  # for answers after the window; what is late then counts as unanswered


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, ready to send, and what it carries.

    Attributes:
        n_tokens: Of its texts; None where only the service knows, and says so in a header.
    """

    data: bytes
    n_texts: int
    n_tokens: int | None = None


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    n_tokens: int
    keep_alive: bool


@dataclass(slots=True)
class Load:
    """What a window saw.

    Attributes:
        latencies: Of each good answer, in seconds.
        errors: How many of each kind.
        kept: Some answers, as (place in the asks, body), to be checked afterwards.
        client_seconds: CPU time of this process in the window.
    """

    seconds: float
    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    kept: list[tuple[int, bytes]] = field(default_factory=list)
    n_texts: int = 0
    n_tokens: int = 0
    n_bytes: int = 0
    client_seconds: float = 0.0

    def quantile(self, share: float) -> float:
        """Latency that a share of the answers stayed below, in seconds; 0 without any."""
        ranked = sorted(self.latencies)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0

    def figures(self) -> dict[str, object]:
        """What is printed of it."""
        n = len(self.latencies)
        return {
            "seconds": self.seconds,
            "requests": n,
            "requests_s": round(n / self.seconds, 2),
            "texts_s": round(self.n_texts / self.seconds, 2),
            "tokens_s": round(self.n_tokens / self.seconds, 1),
            **{
                f"p{round(100 * share)}_ms": round(1000 * self.quantile(share), 2)
                for share in (0.5, 0.95, 0.99)
            },
            "max_ms": round(1000 * max(self.latencies, default=0.0), 2),
            "errors": dict(self.errors),
            "answer_bytes": self.n_bytes // max(1, n),
            "client_us_per_request": round(1e6 * self.client_seconds / max(1, n)),
        }


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request at a time; reads any HTTP/1.1 answer."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._n_tokens = 0

    @property
    def open(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, data: bytes) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            ConnectionError: It was closed before.
        """
        if self._transport is None:
            raise ConnectionResetError
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        answer = await self._waiter
        if not answer.keep_alive:
            self.close()
        return answer

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is told of its transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        self._transport = None
        self._end(ConnectionResetError("closed by the service"))

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as cause:
            self._end(ConnectionError(f"no HTTP: {type(cause).__name__}"))
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Is told a header by the parser."""
        if name.lower() == b"x-compute-tokens" and value.isdigit():
            self._n_tokens = int(value)

    def on_body(self, body: bytes) -> None:
        """Is told a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        parser, pieces, n_tokens = self._parser, self._pieces, self._n_tokens
        answer = Answer(
            parser.get_status_code(), b"".join(pieces), n_tokens, parser.should_keep_alive()
        )
        self._pieces, self._n_tokens = [], 0
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _end(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class Driver:
    """Sends asks to a service for a while.

    Args:
        url: Of the service; only its scheme, host and port are read.
        connections: Closed loop: how many wait at once.
        rate: Open loop instead: requests a second.
        keep_every: Every so many answers one is kept.
    """

    def __init__(
        self,
        url: str,
        asks: Sequence[Ask],
        *,
        seconds: float,
        warmup: float = 2.0,
        connections: int = 1,
        rate: float | None = None,
        timeout: float = 30.0,
        seed: int = 0,
        keep_every: int = 0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url={url!r}; http://HOST:PORT is wanted")
        self._host, self._ssl = parts.hostname, parts.scheme == "https"
        self._port = parts.port or (443 if self._ssl else 80)
        self._asks, self._connections, self._rate = asks, connections, rate
        self._warmup, self._timeout, self._keep_every = warmup, timeout, keep_every
        self._random = random.Random(seed)
        self._sent = 0
        self._idle: list[Connection] = []
        self._begin = self._end = 0.0
        self._load = Load(seconds)

    async def run(self) -> Load:
        """Warm up, measure, and wait for what is still on its way."""
        self._begin = time.perf_counter() + self._warmup
        self._end = self._begin + self._load.seconds
        clock = asyncio.ensure_future(self._client_seconds())
        await (self._closed() if self._rate is None else self._open(self._rate))
        self._load.client_seconds = await clock
        for connection in self._idle:
            connection.close()
        return self._load

    async def _client_seconds(self) -> float:
        await asyncio.sleep(self._begin - time.perf_counter())
        begun = time.process_time()
        await asyncio.sleep(self._end - time.perf_counter())
        return time.process_time() - begun

    async def _closed(self) -> None:
        async def user() -> None:
            while (due := time.perf_counter()) < self._end:
                await self._one(due)

        await self._all([asyncio.ensure_future(user()) for _ in range(self._connections)])

    async def _open(self, rate: float) -> None:
        tasks, due = [], time.perf_counter()
        while due < self._end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.ensure_future(self._one(due)))
            due += self._random.expovariate(rate)
        await self._all(tasks)

    async def _all(self, tasks: "list[asyncio.Task[None]]") -> None:
        left = self._end - time.perf_counter() + GRACE_SECONDS
        _, late = await asyncio.wait(tasks, timeout=left)
        for task in late:
            task.cancel()
            self._load.errors["unanswered"] += 1

    async def _one(self, due: float) -> None:
        place = self._sent % len(self._asks)
        self._sent += 1
        ask = self._asks[place]
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection()
                answer = await connection.ask(ask.data)
        except (OSError, TimeoutError) as error:
            if due >= self._begin:
                self._load.errors[type(error).__name__] += 1
            await asyncio.sleep(0.01)  # a service that is not there is not asked in a busy loop
            return
        self._idle.append(connection)
        now = time.perf_counter()
        # It counts where it was due in the window (open loop) or ended in it (closed loop).
        if self._begin <= (now if self._rate is None else due) < self._end:
            self._count(ask, place, answer, now - due)

    async def _connection(self) -> Connection:
        while self._idle:
            if (connection := self._idle.pop()).open:
                return connection
        _, made = await asyncio.get_running_loop().create_connection(
            Connection, self._host, self._port, ssl=self._ssl or None
        )
        return made

    def _count(self, ask: Ask, place: int, answer: Answer, seconds: float) -> None:
        load = self._load
        if answer.status != 200:
            load.errors[f"status {answer.status}"] += 1
            return
        load.latencies.append(seconds)
        load.n_texts += ask.n_texts
        load.n_tokens += answer.n_tokens if ask.n_tokens is None else ask.n_tokens
        load.n_bytes += len(answer.body)
        if self._keep_every and len(load.latencies) % self._keep_every == 0:
            load.kept.append((place, answer.body))
