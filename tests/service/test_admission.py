"""Who is taken when much waits: by the predicted wait, one rule for a text and a list."""

import time

import pytest

from service.admission import PATIENCE, Admission
from service.errors import DeadlineExceeded, Overloaded


def admission(**changed: float) -> Admission:
    """One worker that takes 1 ms for a unit of cost; a second may be waited."""
    made = Admission(**{"max_wait_seconds": 1.0, "max_queue_cost": 1e9, "n_workers": 1} | changed)
    made.measured(1000, 1.0)
    return made


def test_texts_wait_for_every_text_before_them() -> None:
    queue = admission()
    for request in range(10):
        queue.enter(request, 100)
    assert queue.wait_seconds(100) == pytest.approx(1.0)


def test_a_text_waits_for_a_list_no_longer_than_for_another_text() -> None:
    queue = admission()
    queue.enter(0, 50_000)
    assert queue.wait_seconds(8) == pytest.approx(0.008)
    queue.check(8)


def test_two_workers_halve_the_wait() -> None:
    queue = admission(n_workers=2)
    queue.enter(0, 500)
    assert queue.wait_seconds(500) == pytest.approx(0.25)


def test_a_text_is_refused_from_the_wait_on_that_is_allowed_and_told_when_to_come_back() -> None:
    queue = admission()
    for request in range(60):
        queue.enter(request, 100)
        if request < 10 + PATIENCE:
            queue.check(100)
    with pytest.raises(Overloaded) as refused:
        queue.check(100)
    # 6 s wait before it; 1 s, and four times its own 0.1 s, are allowed.
    assert refused.value.headers["retry-after"] == "5"
    with pytest.raises(Overloaded):
        queue.check_at_the_door(n_bytes=200, deadline=None)


def test_a_few_lists_may_wait_for_one_another_and_many_may_not() -> None:
    queue = admission()
    for request in range(int(PATIENCE)):
        queue.check(10_000)
        queue.enter(request, 10_000)
    queue.enter(9, 10_000)
    with pytest.raises(Overloaded):
        queue.check(10_000)


def test_what_finds_nothing_waiting_is_taken_whatever_its_size() -> None:
    queue = admission(max_queue_cost=100)
    queue.check(1_000_000)
    queue.enter(0, 60)
    with pytest.raises(Overloaded):
        queue.check(41)
    queue.check(40)


def test_before_anything_is_measured_everything_is_taken() -> None:
    queue = Admission(max_wait_seconds=0, max_queue_cost=1e9, n_workers=1)
    queue.enter(0, 1e6)
    queue.check(1e6)


def test_what_would_miss_its_deadline_is_refused_at_once() -> None:
    queue = admission()
    now = time.perf_counter()
    queue.check(100, deadline=now + 0.2)
    with pytest.raises(DeadlineExceeded):
        queue.check(100, deadline=now + 0.05)
    queue.enter(0, 500)
    with pytest.raises(DeadlineExceeded):
        queue.check(300, deadline=now + 0.5)


def test_the_door_takes_a_small_body_when_what_is_usual_would_wait_too_long() -> None:
    queue = admission()
    for request in range(100):
        queue.enter(request, 100)
    queue.check_at_the_door(n_bytes=8, deadline=None)
    with pytest.raises(Overloaded):
        queue.check_at_the_door(n_bytes=1000, deadline=None)


def test_what_has_left_is_waited_for_no_longer() -> None:
    queue = admission()
    queue.enter(0, 0.3)
    for _ in range(3):
        queue.leave(0, 0.1)
    assert queue.waiting_cost == 0
    assert queue.wait_seconds(100) == 0


def test_the_pace_is_that_of_full_batches_where_there_are_any() -> None:
    queue = admission()
    queue.measured(8, 0.08)  # a lone text pays ten times as much for a unit
    assert queue.seconds(1) < 0.0012
