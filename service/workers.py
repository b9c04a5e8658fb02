"""Threads that run batches, and what becomes of one that dies or does not come back."""

import asyncio
import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service.errors import BackendError
from service.metrics import Metrics

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25  # between two looks at what runs
MAX_DEATHS = 5  # of workers in a minute; more of them end the process
MINUTE = 60.0


class Runner(Protocol):
    """What computes batches, in a worker thread; told from others by identity."""

    @property
    def name(self) -> str:
        """What the metrics call it."""

    def run(self, graph: str, payloads: Sequence[Any]) -> Sequence[Any]:
        """The answers in order; a `ServiceError` among them fails its own text only."""


@dataclass(slots=True, kw_only=True, eq=False)
class Batch:
    """Texts on their way through a worker.

    Attributes:
        ticks: Looks at which it ran; counted, not timed, so that a process that was stopped for a
            while does not find its batches late.
        lost: Its worker died or hangs; its texts have been told.
    """

    runner: Runner
    graph: str
    payloads: list[Any]
    running: bool = False
    ticks: int = 0
    lost: bool = False


class Workers:
    """Runs batches; lives on one event loop, to which it reports.

    Args:
        finished: Told the batch, its values and the seconds it took.
        lost: Told of a batch whose worker died or hangs.
        failed: Told why the process cannot go on.
        hang_seconds: Running time from which a batch is given up.
    """

    def __init__(
        self,
        n_workers: int,
        *,
        finished: Callable[[Any, Sequence[Any], float], None],
        lost: Callable[[Any], None],
        failed: Callable[[str], None],
        hang_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._finished, self._lost, self._failed = finished, lost, failed
        self._hang_ticks = max(2, round(hang_seconds / TICK_SECONDS))
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._batches: set[Batch] = set()
        self._deaths: list[float] = []
        self._numbers = itertools.count()
        self._threads: set[threading.Thread] = set()
        for _ in range(n_workers):
            self._start()
        self._watching = self._loop.call_later(TICK_SECONDS, self._watch)

    def put(self, batch: Batch) -> None:
        """Run a batch when a worker is free."""
        self._batches.add(batch)
        self._inbox.put(batch)

    async def close(self) -> None:
        """Stop the workers, once what was put has run; one that hangs is left behind."""
        self._watching.cancel()
        for _ in self._threads:
            self._inbox.put(None)
        if not any(batch.lost for batch in self._batches):
            for thread in list(self._threads):
                await asyncio.to_thread(thread.join)

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"worker-{next(self._numbers)}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        """A worker thread: batches in, one call to the loop out."""
        batch: Batch | None = None
        try:
            while (batch := self._inbox.get()) is not None:
                batch.running = True
                begun = time.perf_counter()
                values = self._run(batch)
                seconds = time.perf_counter() - begun
                self._report(self._done, batch, values, seconds)
        finally:
            if batch is not None:  # anything but an Exception: the thread ends here
                self._report(self._died, threading.current_thread(), batch)

    def _report(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self, batch: Batch) -> Sequence[Any]:
        try:
            return batch.runner.run(batch.graph, batch.payloads)
        except Exception:  # the boundary of the worker: every member is told
            logger.warning("a batch of %d failed", len(batch.payloads), exc_info=True)
        if len(batch.payloads) == 1:
            return [BackendError()]
        self._metrics.retries.inc()
        return [self._run_alone(batch, payload) for payload in batch.payloads]

    def _run_alone(self, batch: Batch, payload: Any) -> Any:
        try:
            return batch.runner.run(batch.graph, [payload])[0]
        except Exception:  # this member is told  # noqa: BLE001
            return BackendError()

    def _done(self, batch: Batch, values: Sequence[Any], seconds: float) -> None:
        self._batches.discard(batch)
        if not batch.lost:
            self._finished(batch, values, seconds)

    def _died(self, thread: threading.Thread, batch: Batch) -> None:
        """A worker has ended in the middle of a batch: tell who waits, and start another."""
        logger.error("%s died", thread.name)
        self._threads.discard(thread)
        self._metrics.workers_lost.inc()
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < MINUTE] + [now]
        if len(self._deaths) > MAX_DEATHS:
            self._failed(f"{len(self._deaths)} workers died within a minute")
        else:
            self._start()
        self._give_up(batch)
        self._batches.discard(batch)

    def _watch(self) -> None:
        """Give up what does not come back; nothing can stop a thread inside a graph."""
        for batch in list(self._batches):
            batch.ticks += batch.running
            if batch.ticks >= self._hang_ticks and not batch.lost:
                self._metrics.workers_lost.inc()
                self._failed(f"a batch has run for {batch.ticks * TICK_SECONDS:g} s")
                for waiting in list(self._batches):
                    if waiting is batch or not waiting.running:
                        self._give_up(waiting)
        self._watching = self._loop.call_later(TICK_SECONDS, self._watch)

    def _give_up(self, batch: Batch) -> None:
        if not batch.lost:
            batch.lost = True
            self._lost(batch)
