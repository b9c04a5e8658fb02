"""Workers that die, hang or meet a poisoned text: everyone who waits is told, and it goes on."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from service.errors import BackendError, DeadlineExceeded, Draining, Internal
from service.metrics import Metrics
from service.scheduler import Item, Outcome, Scheduler
from service.workers import MAX_DEATHS

# The thread's end is what these tests are about.
of_threads_that_end = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


class Faulty:
    """Answers each payload with itself, but for the one that is told otherwise."""

    name = "faulty"

    def __init__(self) -> None:
        self.release = threading.Event()
        self.computed: list[Any] = []

    def run(self, graph: str, payloads: Sequence[Any]) -> Sequence[Any]:
        if "poison" in payloads:
            raise RuntimeError("a kernel failed")
        if "die" in payloads:
            raise SystemExit
        if "hang" in payloads:
            self.release.wait(timeout=30)
        self.computed += payloads
        return payloads

    def item(self, payload: Any, n_tokens: int = 8) -> Item:
        return Item(
            runner=self, graph="encode", payload=payload, n_tokens=n_tokens, row_tokens=n_tokens
        )


def scheduler_of(failures: list[str], **options: Any) -> Scheduler:
    return Scheduler(
        max_batch_cost=8 * 16,
        metrics=Metrics(CollectorRegistry()),
        failed=failures.append,
        **options,
    )


async def test_a_poisoned_text_among_sixteen_harms_none_of_the_others_a_thousand_times() -> None:
    runner, failures = Faulty(), []
    scheduler = scheduler_of(failures)
    for round_ in range(1000):
        payloads: list[Any] = [(round_, n) for n in range(16)]
        payloads[round_ % 16] = "poison"
        answers = await asyncio.gather(
            *scheduler.submit([runner.item(p) for p in payloads]), return_exceptions=True
        )
        for payload, answer in zip(payloads, answers, strict=True):
            if payload == "poison":
                assert isinstance(answer, BackendError)
            else:
                assert isinstance(answer, Outcome)
                assert answer.value == payload
    await scheduler.close()
    assert failures == []


@of_threads_that_end
async def test_the_texts_of_a_worker_that_dies_are_told_and_another_takes_its_place() -> None:
    runner, failures = Faulty(), []
    scheduler = scheduler_of(failures)
    for _ in range(MAX_DEATHS):
        dead, other = scheduler.submit([runner.item("die"), runner.item("other", 100)])
        with pytest.raises(Internal):
            await asyncio.wait_for(dead, 5)
        assert (await asyncio.wait_for(other, 5)).value == "other"
    assert failures == []
    await scheduler.close()


@of_threads_that_end
async def test_workers_that_die_again_and_again_end_the_process() -> None:
    runner, failures = Faulty(), []
    scheduler = scheduler_of(failures)
    for _ in range(MAX_DEATHS + 1):
        with pytest.raises(Internal):
            await asyncio.wait_for(scheduler.submit([runner.item("die")])[0], 5)
    assert failures == [f"{MAX_DEATHS + 1} workers died within a minute"]
    with pytest.raises(Draining):
        scheduler.submit([runner.item("late")])
    await scheduler.close()


async def test_a_batch_that_hangs_is_given_up_with_all_that_no_worker_will_take() -> None:
    runner, failures = Faulty(), []
    scheduler = scheduler_of(failures, hang_seconds=0.5)
    hung, queued = scheduler.submit([runner.item("hang"), runner.item("queued", 100)])
    with pytest.raises(Internal):
        await asyncio.wait_for(hung, 5)
    with pytest.raises(Draining):
        await asyncio.wait_for(queued, 5)
    assert failures == ["a batch has run for 0.5 s"]
    await asyncio.wait_for(scheduler.close(), 5)  # it waits for no thread that hangs
    runner.release.set()


async def test_what_runs_beside_a_batch_that_hangs_is_answered() -> None:
    runner, failures = Faulty(), []
    scheduler = scheduler_of(failures, hang_seconds=0.5, n_workers=2)
    hung = scheduler.submit([runner.item("hang")])[0]
    assert (await scheduler.submit([runner.item("fine")])[0]).value == "fine"
    with pytest.raises(Internal):
        await asyncio.wait_for(hung, 5)
    runner.release.set()


async def test_what_cannot_be_done_by_its_deadline_is_not_computed() -> None:
    runner, failures = Faulty(), []
    scheduler = scheduler_of(failures)
    first = scheduler.submit([runner.item("hang")])
    late = scheduler.submit([runner.item("late")], deadline=time.perf_counter() + 0.05)
    soon = scheduler.submit([runner.item("in time")], deadline=time.perf_counter() + 60)
    await asyncio.sleep(0.06)
    runner.release.set()
    with pytest.raises(DeadlineExceeded):
        await late[0]
    assert (await soon[0]).value == "in time"
    await asyncio.gather(*first)
    assert "late" not in runner.computed
    await scheduler.close()
