"""The queue: what waits is grouped by length into batches under a cost budget. Knows no HTTP.

No timer: a batch is what gathered while the device was busy. Waiting texts are ordered by
start-time fair queuing (Goyal et al. 1996): a request's first text starts at the clock of what is
being served, each further one after the cost of those before it. So a text that arrives alone
passes the bulk of a long list, and nothing waits for ever, whatever its length: the first in order
is in every batch.
"""

import asyncio
import heapq
import itertools
import logging
import math
import queue
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from service.errors import BackendError, Draining, Overloaded, ServiceError
from service.metrics import Metrics

logger = logging.getLogger(__name__)

LENGTH_STEP = 8  # lengths are rounded up to it: few shapes, full vector registers
LENGTH_REACH = 0.25  # a batch takes texts up to this much shorter or longer than its first


@dataclass(frozen=True, kw_only=True)
class Item:
    """One text's work.

    Attributes:
        runner: What computes it: a loaded model. One batch has one graph of one runner.
        graph: What runs.
        payload: What the runner needs.
        n_tokens: Its length.
        quadratic_cost: Cost per padded token squared, for outputs of that size.
        fixed_cost: Cost whatever the length, in padded tokens.
    """

    runner: "Runner"
    graph: str
    payload: Any
    n_tokens: int
    quadratic_cost: float = 0.0
    fixed_cost: float = 0.0

    @property
    def padded(self) -> int:
        """Its length rounded up."""
        return -(-self.n_tokens // LENGTH_STEP) * LENGTH_STEP

    def cost_at(self, length: int) -> float:
        """Its cost in a batch of rows of `length` tokens."""
        return length + self.quadratic_cost * length * length + self.fixed_cost


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to an item, and where its time went, in seconds."""

    value: Any
    queue_seconds: float
    run_seconds: float


class Runner(Protocol):
    """What computes batches, in a worker thread; told from others by identity."""

    @property
    def name(self) -> str:
        """What the metrics call it."""

    def run(self, graph: str, payloads: Sequence[Any]) -> Sequence[Any]:
        """The answers in order; a `ServiceError` among them fails its own text only."""


@dataclass(order=True, slots=True)
class _Waiting:
    start: float
    number: int
    item: Item = field(compare=False)
    future: "asyncio.Future[Outcome]" = field(compare=False)
    since: float = field(compare=False)


@dataclass(slots=True)
class _Batch:
    runner: Runner
    graph: str
    members: list[_Waiting]
    cost: float
    begun: float


class Scheduler:
    """Batches items and runs them on worker threads; lives on one event loop.

    Args:
        max_batch_cost: Budget of a batch, in padded tokens; a single item may exceed it.
        max_queue_cost: What may wait; beyond it `submit` refuses. A request that finds nothing
            waiting is taken whatever its size.
    """

    def __init__(
        self,
        *,
        max_batch_cost: float,
        max_queue_cost: float = math.inf,
        n_workers: int = 1,
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._max_batch_cost, self._max_queue_cost = max_batch_cost, max_queue_cost
        self._loop = asyncio.get_running_loop()
        self._groups: dict[Hashable, dict[int, list[_Waiting]]] = {}
        self._numbers = itertools.count()
        self._clock = 0.0  # start of the newest item in service
        self._depth, self._cost = 0, 0.0
        self._seconds_per_cost = 0.0  # of one worker, a moving mean
        self._idle = self._n_workers = n_workers
        self._closing, self._empty = False, asyncio.Event()
        self._empty.set()
        self._inbox: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"worker-{n}", daemon=True)
            for n in range(n_workers)
        ]
        for thread in self._threads:
            thread.start()
        metrics.watch_queue(
            depth=lambda: self._depth, cost=lambda: self._cost, capacity=max_queue_cost
        )

    def submit(self, items: Sequence[Item]) -> "list[asyncio.Future[Outcome]]":
        """Queue the items of one request, all or none.

        Raises:
            Overloaded: Too much waits already.
            Draining: The scheduler is closing.
        """
        if self._closing:
            raise Draining
        cost = sum(item.cost_at(item.padded) for item in items)
        if self._cost and self._cost + cost > self._max_queue_cost:
            raise Overloaded(retry_after_s=self._seconds_to_drain())
        start, futures = self._clock, []
        for item in items:
            future: asyncio.Future[Outcome] = self._loop.create_future()
            self._push(_Waiting(start, next(self._numbers), item, future, time.perf_counter()))
            start += item.cost_at(item.padded)
            futures.append(future)
        self._dispatch()
        return futures

    async def close(self) -> None:
        """Refuse new work, finish what waits and runs, stop the workers."""
        self._closing = True
        await self._empty.wait()
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _seconds_to_drain(self) -> int:
        seconds = self._cost * self._seconds_per_cost / self._n_workers
        return min(60, max(1, math.ceil(seconds)))

    def _push(self, waiting: _Waiting) -> None:
        item = waiting.item
        lengths = self._groups.setdefault((id(item.runner), item.graph), {})
        heapq.heappush(lengths.setdefault(item.padded, []), waiting)
        self._depth += 1
        self._cost += item.cost_at(item.padded)
        self._empty.clear()

    def _pop(self, lengths: dict[int, list[_Waiting]], length: int) -> _Waiting:
        waiting = heapq.heappop(lengths[length])
        if not lengths[length]:
            del lengths[length]
        self._depth -= 1
        self._cost = self._cost - waiting.item.cost_at(length) if self._depth else 0.0
        return waiting

    def _dispatch(self) -> None:
        """Hand batches to idle workers."""
        while self._idle and (batch := self._next_batch()):
            self._idle -= 1
            self._inbox.put(batch)
        if not self._depth and self._idle == self._n_workers:
            self._empty.set()

    def _next_batch(self) -> _Batch | None:
        while self._depth:
            key = min(self._groups, key=lambda k: min(h[0] for h in self._groups[k].values()))
            lengths = self._groups[key]
            members, cost = self._gather(lengths)
            if not lengths:
                del self._groups[key]
            if members:
                members.sort(key=lambda waiting: waiting.item.n_tokens)
                item = members[0].item
                return _Batch(item.runner, item.graph, members, cost, time.perf_counter())
        return None

    def _gather(self, lengths: dict[int, list[_Waiting]]) -> tuple[list[_Waiting], float]:
        """The first in order and what fits beside it; those whose client left are dropped."""
        first = min(lengths, key=lambda length: lengths[length][0])
        self._clock = max(self._clock, lengths[first][0].start)
        members: list[_Waiting] = []
        longest, cost = 0, 0.0
        for length in _outwards(first, list(lengths)):
            while length in lengths:
                waiting, at = lengths[length][0], max(longest, length)
                so_far = cost if at == longest else sum(m.item.cost_at(at) for m in members)
                grown = so_far + waiting.item.cost_at(at)
                if members and grown > self._max_batch_cost:
                    break
                self._pop(lengths, length)
                if waiting.future.done():
                    self._metrics.cancelled.inc()
                    continue
                members.append(waiting)
                longest, cost = at, grown
        return members, cost

    def _work(self) -> None:
        """A worker thread: batches in, one call to the loop out."""
        while (batch := self._inbox.get()) is not None:
            begun = time.perf_counter()
            values = self._run(batch)
            seconds = time.perf_counter() - begun
            self._loop.call_soon_threadsafe(self._finish, batch, values, seconds)

    def _run(self, batch: _Batch) -> Sequence[Any]:
        payloads = [member.item.payload for member in batch.members]
        try:
            return batch.runner.run(batch.graph, payloads)
        except Exception:  # the boundary of the worker: every member is told
            logger.warning("a batch of %d failed", len(payloads), exc_info=True)
        if len(payloads) == 1:
            return [BackendError()]
        self._metrics.retries.inc()
        return [self._run_alone(batch, payload) for payload in payloads]

    def _run_alone(self, batch: _Batch, payload: Any) -> Any:
        try:
            return batch.runner.run(batch.graph, [payload])[0]
        except Exception:  # this member is told  # noqa: BLE001
            return BackendError()

    def _finish(self, batch: _Batch, values: Sequence[Any], run_seconds: float) -> None:
        self._idle += 1
        pace = run_seconds / batch.cost
        before = self._seconds_per_cost or pace
        self._seconds_per_cost = before + 0.1 * (pace - before)
        for member, value in zip(batch.members, values, strict=True):
            queued = batch.begun - member.since
            self._metrics.queue_seconds.labels(batch.graph, batch.runner.name).observe(queued)
            if member.future.done():
                continue  # its client left while it ran
            if isinstance(value, ServiceError):
                self._metrics.failures.labels(value.code, batch.runner.name).inc()
                member.future.set_exception(value)
            else:
                member.future.set_result(Outcome(value, queued, run_seconds))
        self._observe(batch, run_seconds)
        self._dispatch()

    def _observe(self, batch: _Batch, run_seconds: float) -> None:
        items = [member.item for member in batch.members]
        real = sum(item.n_tokens for item in items)
        padded = len(items) * max(item.padded for item in items)
        self._metrics.run_seconds.labels(batch.graph, batch.runner.name).observe(run_seconds)
        self._metrics.batch_items.observe(len(items))
        self._metrics.batch_cost.observe(batch.cost)
        self._metrics.tokens.labels("real", batch.runner.name).inc(real)
        self._metrics.tokens.labels("padding", batch.runner.name).inc(padded - real)


def _outwards(first: int, lengths: list[int]) -> Iterator[int]:
    """Lengths within reach of `first`, nearest first, the shorter of two."""
    reach = max(LENGTH_STEP, LENGTH_REACH * first)
    near = [length for length in lengths if abs(length - first) <= reach]
    return iter(sorted(near, key=lambda length: (abs(length - first), length)))
