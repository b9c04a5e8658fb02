"""The queue: grouped by length, under a budget, fair, and nothing accepted is lost."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from service.errors import BackendError, Draining, NonFinite, Overloaded
from service.metrics import Metrics
from service.scheduler import Item, Outcome, Scheduler


class Recorder:
    """Answers each payload with itself; a batch waits for `gate` once it has started."""

    name = "model"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.batches: list[list[Any]] = []
        self._loop = asyncio.get_running_loop()
        self._started = asyncio.Event()

    def run(self, graph: str, payloads: Sequence[Any]) -> Sequence[Any]:
        self.batches.append(list(payloads))
        self._loop.call_soon_threadsafe(self._started.set)
        assert self.gate.wait(timeout=10)
        return payloads

    def item(self, n_tokens: int, **fields: Any) -> Item:
        """An item that it computes."""
        given = {"runner": self, "graph": "encode", "payload": n_tokens, "row_tokens": n_tokens}
        given |= fields
        return Item(**given, n_tokens=n_tokens)

    async def started(self) -> None:
        """Until the first batch runs."""
        await self._started.wait()


class Open(Recorder):
    """A recorder that never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.gate.set()


def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest_asyncio.fixture
async def recorder() -> AsyncIterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.gate.set()


async def values(futures: "Sequence[asyncio.Future[Outcome]]") -> list[Any]:
    return [outcome.value for outcome in await asyncio.gather(*futures)]


async def test_texts_of_like_length_that_gathered_during_a_run_share_the_next_batch(
    recorder: Recorder,
) -> None:
    scheduler = Scheduler(max_batch_cost=64, metrics=metrics())
    futures = scheduler.submit([recorder.item(8)])
    await recorder.started()
    for n in (8, 60, 9, 7):
        futures += scheduler.submit([recorder.item(n)])
    recorder.gate.set()
    assert await values(futures) == [8, 8, 60, 9, 7]
    assert recorder.batches == [[8], [7, 8, 9], [60]]


async def test_a_batch_stays_within_its_budget_of_padded_tokens(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=32, metrics=metrics())
    futures = scheduler.submit([recorder.item(1)])
    await recorder.started()
    futures += scheduler.submit([recorder.item(8) for _ in range(9)])
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert [len(batch) for batch in recorder.batches] == [1, 4, 4, 1]


async def test_a_text_over_the_budget_runs_alone(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=32, metrics=metrics())
    futures = scheduler.submit([recorder.item(1)])
    await recorder.started()
    futures += scheduler.submit([recorder.item(100), recorder.item(100)])
    recorder.gate.set()
    assert await values(futures) == [1, 100, 100]
    assert recorder.batches == [[1], [100], [100]]


async def test_masks_and_quadratic_outputs_count_in_the_budget(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=64, metrics=metrics())
    futures = scheduler.submit([recorder.item(1)])
    await recorder.started()
    futures += scheduler.submit([recorder.item(8, fixed_cost=24) for _ in range(4)])
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert [len(batch) for batch in recorder.batches] == [1, 2, 2]
    assert recorder.item(8, quadratic_cost=0.5).cost_at(8) == 8 + 32


async def test_graphs_and_models_are_never_mixed_in_a_batch(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=1000, metrics=metrics())
    futures = scheduler.submit([recorder.item(1)])
    await recorder.started()
    other = Recorder()
    other.batches, other.gate = recorder.batches, recorder.gate
    for runner in (recorder, other):
        for graph in ("encode", "attention"):
            kind = {"graph": graph, "payload": (id(runner), graph)}
            futures += scheduler.submit([runner.item(8, **kind) for _ in range(2)])
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert all(len(set(batch)) == 1 for batch in recorder.batches)
    assert len(recorder.batches) == 5


async def test_a_text_that_arrives_alone_passes_the_bulk_of_a_long_list(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=8, metrics=metrics())
    futures = scheduler.submit([recorder.item(1)])
    await recorder.started()
    futures += scheduler.submit([recorder.item(8, payload=f"list {n}") for n in range(50)])
    futures += scheduler.submit([recorder.item(8, payload="alone")])
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert ["alone"] in recorder.batches[:4]


async def test_a_long_text_is_not_starved_by_short_ones_that_keep_coming() -> None:
    recorder = Open()
    scheduler = Scheduler(max_batch_cost=64, metrics=metrics())
    long, short = scheduler.submit([recorder.item(500, payload="long")]), []
    for _ in range(200):
        short += scheduler.submit([recorder.item(8)])
        if long[0].done():
            break
        await asyncio.sleep(0)
    await asyncio.gather(*long, *short)
    position = next(i for i, batch in enumerate(recorder.batches) if batch == ["long"])
    assert position <= 1


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=8, max_queue_cost=16, metrics=metrics())
    futures = scheduler.submit([recorder.item(8)])
    await recorder.started()
    futures += scheduler.submit([recorder.item(8), recorder.item(8)])
    with pytest.raises(Overloaded) as refused:
        scheduler.submit([recorder.item(8)])
    assert int(refused.value.headers["retry-after"]) >= 1
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert sum(map(len, recorder.batches)) == 3


async def test_a_list_larger_than_the_queue_is_taken_when_nothing_waits(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=8, max_queue_cost=16, metrics=metrics())
    futures = scheduler.submit([recorder.item(8) for _ in range(10)])
    recorder.gate.set()
    assert await values(futures) == [8] * 10


async def test_a_text_whose_client_left_is_dropped_before_it_is_computed(
    recorder: Recorder,
) -> None:
    counted = metrics()
    scheduler = Scheduler(max_batch_cost=64, metrics=counted)
    first = scheduler.submit([recorder.item(1)])
    await recorder.started()
    left, stays = scheduler.submit(
        [recorder.item(8, payload="left"), recorder.item(8, payload="stays")]
    )
    left.cancel()
    recorder.gate.set()
    await asyncio.gather(*first, stays)
    assert recorder.batches == [[1], ["stays"]]
    assert counted.registry.get_sample_value("maskwright_cancelled_total", {"stage": "queued"}) == 1


class Poisoned(Open):
    """Fails every batch that holds a poisoned payload."""

    def run(self, graph: str, payloads: Sequence[Any]) -> Sequence[Any]:
        super().run(graph, payloads)
        if "poison" in payloads:
            raise RuntimeError("a kernel failed")
        return payloads


async def test_a_failed_batch_is_run_again_singly_and_only_the_guilty_text_fails() -> None:
    recorder = Poisoned()
    recorder.gate.clear()
    scheduler = Scheduler(max_batch_cost=1000, metrics=metrics())
    first = scheduler.submit([recorder.item(1)])
    await recorder.started()
    payloads = ["a", "b", "poison", "c"]
    futures = scheduler.submit([recorder.item(8, payload=payload) for payload in payloads])
    recorder.gate.set()
    answers = await asyncio.gather(*futures, return_exceptions=True)
    await asyncio.gather(*first)
    assert [a.value for a in answers if isinstance(a, Outcome)] == ["a", "b", "c"]
    assert isinstance(answers[2], BackendError)
    assert await values(scheduler.submit([recorder.item(8)])) == [8]


async def test_a_failure_that_the_runner_names_is_of_its_text_alone() -> None:
    class Names(Open):
        def run(self, graph: str, payloads: Sequence[Any]) -> Sequence[Any]:
            return [NonFinite() if payload == "nan" else payload for payload in payloads]

    recorder = Names()
    scheduler = Scheduler(max_batch_cost=1000, metrics=metrics())
    futures = scheduler.submit([recorder.item(8, payload="nan"), recorder.item(8, payload="fine")])
    nan, fine = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(nan, NonFinite)
    assert isinstance(fine, Outcome)


async def test_closing_finishes_what_was_accepted_and_refuses_the_rest(recorder: Recorder) -> None:
    scheduler = Scheduler(max_batch_cost=8, n_workers=2, metrics=metrics())
    futures = scheduler.submit([recorder.item(8) for _ in range(20)])
    closing = asyncio.ensure_future(scheduler.close())
    await recorder.started()
    with pytest.raises(Draining):
        scheduler.submit([recorder.item(8)])
    recorder.gate.set()
    await closing
    assert all(future.done() for future in futures)
    assert await values(futures) == [8] * 20


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=20), max_size=20),
    budget=st.integers(8, 600),
    n_workers=st.integers(1, 3),
)
def test_every_text_is_answered_once_and_no_batch_of_several_exceeds_its_budget(
    requests: list[list[int]], budget: int, n_workers: int
) -> None:
    async def scenario() -> None:
        recorder = Open()
        scheduler = Scheduler(max_batch_cost=budget, n_workers=n_workers, metrics=metrics())
        futures, wanted = [], []
        for number, lengths in enumerate(requests):
            payloads = [(number, place, n) for place, n in enumerate(lengths)]
            futures += scheduler.submit([recorder.item(p[2], payload=p) for p in payloads])
            wanted += payloads
            await asyncio.sleep(0)
        assert await values(futures) == wanted
        assert sorted(p for batch in recorder.batches for p in batch) == sorted(wanted)
        for batch in recorder.batches:
            longest = max(-(-n // 8) * 8 for _, _, n in batch)
            assert len(batch) == 1 or longest * len(batch) <= budget
        await scheduler.close()

    asyncio.run(scenario())


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=40),
    budget=st.integers(8, 600),
    at_once=st.integers(1, 8),
)
def test_a_text_is_passed_by_no_more_batches_than_texts_came_before_it(
    lengths: list[int], budget: int, at_once: int
) -> None:
    async def scenario() -> None:
        recorder = Open()
        scheduler = Scheduler(max_batch_cost=budget, metrics=metrics())
        futures = []
        for place, n in enumerate(lengths):
            futures += scheduler.submit([recorder.item(n, payload=place)])
            if place % at_once == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*futures)
        for batch_number, batch in enumerate(recorder.batches):
            assert all(batch_number <= place for place in batch)
        await scheduler.close()

    asyncio.run(scenario())


async def test_a_text_joins_a_batch_if_its_padding_costs_less_than_a_call(
    recorder: Recorder,
) -> None:
    scheduler = Scheduler(max_batch_cost=1000, call_cost=16, metrics=metrics())
    futures = scheduler.submit([recorder.item(1)])
    await recorder.started()
    # 24 with 8 wastes 16; 24 and 8 with 32 would waste 8 + 24, and 40 with 24 twice 16.
    for n in (24, 8, 40, 24):
        futures += scheduler.submit([recorder.item(n)])
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert recorder.batches == [[1], [8, 24, 24], [40]]


async def test_the_queue_is_read_when_it_is_scraped(recorder: Recorder) -> None:
    counted = metrics()
    scheduler = Scheduler(max_batch_cost=8, max_queue_cost=64, metrics=counted)
    futures = scheduler.submit([recorder.item(8)])
    await recorder.started()
    futures += scheduler.submit([recorder.item(8), recorder.item(16)])
    read = counted.registry.get_sample_value
    assert read("maskwright_queue_depth") == 2
    assert read("maskwright_queue_cost") == 24
    assert read("maskwright_queue_capacity_cost") == 64
    recorder.gate.set()
    await asyncio.gather(*futures)
    assert read("maskwright_queue_depth") == read("maskwright_queue_cost") == 0
    assert read("maskwright_tokens_total", {"kind": "real", "model": "model"}) == 32


async def test_padding_is_counted_as_the_rows_were_and_not_as_they_were_grouped(
    recorder: Recorder,
) -> None:
    counted = metrics()
    scheduler = Scheduler(max_batch_cost=64, max_queue_cost=640, metrics=counted)
    first = scheduler.submit([recorder.item(3, row_tokens=4)])
    await recorder.started()
    others = scheduler.submit([recorder.item(n, row_tokens=n + n % 2) for n in (9, 11)])
    recorder.gate.set()
    await asyncio.gather(*first, *others)
    read = counted.registry.get_sample_value
    assert recorder.batches == [[3], [9, 11]]
    assert read("maskwright_tokens_total", {"kind": "padding", "model": "model"}) == 1 + 3 + 1


async def test_a_text_costs_the_row_that_it_takes(recorder: Recorder) -> None:
    """On a GPU 17 tokens take a bucket of 32."""
    item = recorder.item(17, row_tokens=32)
    assert item.padded == 32
    assert item.cost_at(item.padded) == 32
