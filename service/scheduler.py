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
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.admission import Admission
from service.errors import DeadlineExceeded, Draining, Internal, ServiceError
from service.metrics import Metrics
from service.workers import Batch, Runner, Workers

logger = logging.getLogger(__name__)

LENGTH_STEP = 8  # of the groups that texts wait in
CALL_COST = 16.0  # padded tokens that a call on a CPU costs beside its texts


@dataclass(frozen=True, kw_only=True)
class Item:
    """One text's work.

    Attributes:
        runner: What computes it: a loaded model. One batch has one graph of one runner.
        graph: What runs.
        payload: What the runner needs.
        n_tokens: Its length.
        row_tokens: How long a batch's rows are if it is the longest there.
        quadratic_cost: Cost per padded token squared, for outputs of that size.
        fixed_cost: Cost whatever the length, in padded tokens.
    """

    runner: Runner
    graph: str
    payload: Any
    n_tokens: int
    row_tokens: int
    quadratic_cost: float = 0.0
    fixed_cost: float = 0.0

    @property
    def padded(self) -> int:
        """The length of its group: steps that are wide enough for others to be in it."""
        return -(-self.row_tokens // LENGTH_STEP) * LENGTH_STEP

    def cost_at(self, length: int) -> float:
        """Its cost in a batch of rows of `length` tokens."""
        return length + self.quadratic_cost * length * length + self.fixed_cost


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to an item, and where its time went, in seconds."""

    value: Any
    queue_seconds: float
    run_seconds: float


@dataclass(order=True, slots=True)
class _Waiting:
    start: float
    number: int
    request: int = field(compare=False)
    item: Item = field(compare=False)
    future: "asyncio.Future[Outcome]" = field(compare=False)
    since: float = field(compare=False)
    deadline: float | None = field(compare=False)


@dataclass(slots=True, kw_only=True, eq=False)
class _Batch(Batch):
    members: list[_Waiting]
    cost: float
    begun: float


class Scheduler:
    """Batches items and runs them on worker threads; lives on one event loop.

    Args:
        max_batch_cost: Budget of a batch, in padded tokens; a single item may exceed it.
        call_cost: What a batch costs beside its texts: a text joins one if the padding it brings
            costs less than a call of its own.
        max_queue_cost, max_wait_seconds: What may wait; see `Admission`.
        hang_seconds: Running time from which a batch is given up.
        failed: Told why the process cannot go on.
    """

    def __init__(
        self,
        *,
        max_batch_cost: float,
        call_cost: float = CALL_COST,
        max_queue_cost: float = math.inf,
        max_wait_seconds: float = math.inf,
        hang_seconds: float = 60.0,
        failed: Callable[[str], None] = logger.error,
        n_workers: int = 1,
        metrics: Metrics,
    ) -> None:
        self._metrics, self._max_batch_cost = metrics, max_batch_cost
        self._call_cost = call_cost
        self._loop = asyncio.get_running_loop()
        self._groups: dict[Hashable, dict[int, list[_Waiting]]] = {}
        self._numbers, self._requests = itertools.count(), itertools.count()
        self._clock = 0.0  # start of the newest item in service
        self._depth = 0
        self._idle = self._n_workers = n_workers
        self._closing, self._empty = False, asyncio.Event()
        self._empty.set()
        self._failed = failed
        self.admission = Admission(
            max_wait_seconds=max_wait_seconds, max_queue_cost=max_queue_cost, n_workers=n_workers
        )
        self._workers = Workers(
            n_workers,
            finished=self._finish,
            lost=self._lose,
            failed=self._fail,
            hang_seconds=hang_seconds,
            metrics=metrics,
        )
        metrics.watch_queue(
            depth=lambda: self._depth,
            cost=lambda: self.admission.waiting_cost,
            capacity=max_queue_cost,
        )

    def submit(
        self, items: Sequence[Item], *, deadline: float | None = None
    ) -> "list[asyncio.Future[Outcome]]":
        """Queue the items of one request, all or none.

        Args:
            deadline: When its answer is of no more use, as `time.perf_counter` tells.

        Raises:
            Overloaded, DeadlineExceeded: It would wait too long.
            Draining: The scheduler is closing.
        """
        if self._closing:
            raise Draining
        cost = sum(item.cost_at(item.padded) for item in items)
        self.admission.check(cost, deadline=deadline)
        request, since = next(self._requests), time.perf_counter()
        self.admission.enter(request, cost)
        start, futures = self._clock, []
        for item in items:
            future: asyncio.Future[Outcome] = self._loop.create_future()
            number = next(self._numbers)
            self._push(_Waiting(start, number, request, item, future, since, deadline))
            start += item.cost_at(item.padded)
            futures.append(future)
        self._dispatch()
        return futures

    async def close(self) -> None:
        """Refuse new work, finish what waits and runs, stop the workers."""
        self._closing = True
        await self._empty.wait()
        await self._workers.close()

    def _push(self, waiting: _Waiting) -> None:
        item = waiting.item
        lengths = self._groups.setdefault((id(item.runner), item.graph), {})
        heapq.heappush(lengths.setdefault(item.padded, []), waiting)
        self._depth += 1
        self._empty.clear()

    def _pop(self, lengths: dict[int, list[_Waiting]], length: int) -> _Waiting:
        waiting = heapq.heappop(lengths[length])
        if not lengths[length]:
            del lengths[length]
        self._depth -= 1
        self.admission.leave(waiting.request, waiting.item.cost_at(length))
        return waiting

    def _dispatch(self) -> None:
        """Hand batches to idle workers."""
        while self._idle and (batch := self._next_batch()):
            self._idle -= 1
            self._workers.put(batch)
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
                return _Batch(
                    runner=item.runner,
                    graph=item.graph,
                    payloads=[member.item.payload for member in members],
                    members=members,
                    cost=cost,
                    begun=time.perf_counter(),
                )
        return None

    def _gather(self, lengths: dict[int, list[_Waiting]]) -> tuple[list[_Waiting], float]:
        """The first in order and what fits beside it; what nobody waits for is dropped."""
        first = min(lengths, key=lambda length: lengths[length][0])
        self._clock = max(self._clock, lengths[first][0].start)
        members: list[_Waiting] = []
        longest, cost = 0, 0.0
        for length in _outwards(first, lengths):
            while length in lengths:
                waiting, at = lengths[length][0], max(longest, length)
                so_far = cost if at == longest else sum(m.item.cost_at(at) for m in members)
                grown = so_far + waiting.item.cost_at(at)
                apart = cost + waiting.item.cost_at(length) + self._call_cost
                if members and grown > min(self._max_batch_cost, apart):
                    break
                self._pop(lengths, length)
                if self._given_up(waiting):
                    continue
                members.append(waiting)
                longest, cost = at, grown
        return members, cost

    def _given_up(self, waiting: _Waiting) -> bool:
        """Whether a text's client left, or its deadline will have passed when it is done."""
        if waiting.future.done():
            self._metrics.cancelled.labels("queued").inc()
            return True
        if waiting.deadline is None:
            return False
        seconds = self.admission.seconds(waiting.item.cost_at(waiting.item.padded))
        if time.perf_counter() + seconds <= waiting.deadline:
            return False
        self._metrics.failures.labels("deadline_exceeded", waiting.item.runner.name).inc()
        waiting.future.set_exception(DeadlineExceeded(retry_after_s=1))
        return True

    def _lose(self, batch: _Batch) -> None:
        """The worker of a batch died or hangs."""
        self._idle += 1
        self._tell(batch.members, Internal)
        self._dispatch()

    def _fail(self, reason: str) -> None:
        """The process cannot go on: nobody waits for what no worker will take."""
        self._closing = True
        self._failed(reason)
        for lengths in self._groups.values():
            for heap in lengths.values():
                self._tell(heap, Draining)

    @staticmethod
    def _tell(members: Sequence[_Waiting], error: Callable[[], ServiceError]) -> None:
        for member in members:
            if not member.future.done():
                member.future.set_exception(error())

    def _finish(self, batch: _Batch, values: Sequence[Any], run_seconds: float) -> None:
        self._idle += 1
        self.admission.measured(batch.cost, run_seconds)
        self._dispatch()  # first of all: the worker waits
        for member, value in zip(batch.members, values, strict=True):
            queued = batch.begun - member.since
            self._metrics.queue_seconds.labels(batch.graph, batch.runner.name).observe(queued)
            if member.future.done():
                self._metrics.cancelled.labels("running").inc()
                continue  # its client left while it ran
            if isinstance(value, ServiceError):
                self._metrics.failures.labels(value.code, batch.runner.name).inc()
                member.future.set_exception(value)
            else:
                member.future.set_result(Outcome(value, queued, run_seconds))
        self._observe(batch, run_seconds)

    def _observe(self, batch: _Batch, run_seconds: float) -> None:
        items = [member.item for member in batch.members]
        real = sum(item.n_tokens for item in items)
        padded = len(items) * max(item.row_tokens for item in items)
        self._metrics.run_seconds.labels(batch.graph, batch.runner.name).observe(run_seconds)
        self._metrics.batch_items.observe(len(items))
        self._metrics.batch_cost.observe(batch.cost)
        self._metrics.tokens.labels("real", batch.runner.name).inc(real)
        self._metrics.tokens.labels("padding", batch.runner.name).inc(padded - real)


def _outwards(first: int, lengths: Iterable[int]) -> list[int]:
    """Lengths nearest to `first` first, the shorter of two."""
    return sorted(lengths, key=lambda length: (abs(length - first), length))
