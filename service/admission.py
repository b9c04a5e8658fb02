"""Whether a request is taken: from how long it would wait for the work before it.

Waiting texts are served in start-time fair order (see scheduler.py), so that what is computed
before a request of cost c ends is, of each request that waits, at most c. That sum, times the
measured time per unit of cost, is its predicted wait: a text passes a list, and a list waits for
the lists before it. One rule for both.
"""

import math
import time

from service.errors import DeadlineExceeded, Overloaded

# A request may wait this many times as long as its own work takes, beyond the limit: so that a few
# lists may wait for one another.
PATIENCE = 4.0
SMALLEST = 8.0  # no request costs less, in padded tokens
FORGET = 0.9  # of the measured pace and sizes, what the next one leaves


class Admission:
    """What waits, how fast it is served, and so who may still come in.

    Args:
        max_wait_seconds: Predicted wait from which requests are refused.
        max_queue_cost: Cost that may wait in all; a request that finds nothing waiting is taken
            whatever its size.
        n_workers: Batches that run at once.
    """

    def __init__(self, *, max_wait_seconds: float, max_queue_cost: float, n_workers: int) -> None:
        self._max_wait, self._max_cost = max_wait_seconds, max_queue_cost
        self._n_workers = n_workers
        self._waiting: dict[int, float] = {}  # cost of each request that waits
        self._seconds = self._cost = 0.0  # of recent batches; the newest weigh most
        self._requests = self._requested = 0.0  # of recent requests, and their cost
        self.waiting_cost = 0.0

    def enter(self, request: int, cost: float) -> None:
        """A request is queued."""
        self._waiting[request] = cost
        self.waiting_cost += cost
        self._requests = FORGET * self._requests + 1
        self._requested = FORGET * self._requested + cost

    def leave(self, request: int, cost: float) -> None:
        """A text of a request waits no longer."""
        left = self._waiting[request] - cost
        if left > 1e-6:
            self._waiting[request] = left
            self.waiting_cost -= cost
            return
        del self._waiting[request]
        self.waiting_cost = self.waiting_cost - cost if self._waiting else 0.0

    def measured(self, cost: float, seconds: float) -> None:
        """A batch has run on one worker."""
        self._cost = FORGET * self._cost + cost
        self._seconds = FORGET * self._seconds + seconds

    def seconds(self, cost: float) -> float:
        """That one worker takes for work of a cost; 0 before anything was measured."""
        return cost * self._seconds / self._cost if self._cost else 0.0

    def wait_seconds(self, cost: float) -> float:
        """That a request of a cost would wait for others."""
        before = sum(min(waiting, cost) for waiting in self._waiting.values())
        return self.seconds(before) / self._n_workers

    def check(self, cost: float, *, deadline: float | None = None) -> None:
        """Refuse a request that would wait too long.

        Args:
            deadline: When its answer is of no more use, as `time.perf_counter` tells.

        Raises:
            Overloaded: It would wait longer than the setting allows, or too much waits in all.
            DeadlineExceeded: It would be answered after its deadline.
        """
        if self.waiting_cost and self.waiting_cost + cost > self._max_cost:
            raise Overloaded(retry_after_s=_retry_after(self._drain_seconds))
        own = self.seconds(cost) / self._n_workers
        limit = self._max_wait + PATIENCE * own
        if deadline is not None:
            left = deadline - time.perf_counter()
            if own > left or self.wait_seconds(cost) + own > left:
                raise DeadlineExceeded(retry_after_s=_retry_after(self._drain_seconds))
        if self._drain_seconds > limit and (wait := self.wait_seconds(cost)) > limit:
            raise Overloaded(retry_after_s=_retry_after(wait - limit))

    def check_at_the_door(self, *, n_bytes: int, deadline: float | None) -> None:
        """The same before the body is read: for a request of usual size, but no larger than it is.

        A token has at least one byte.

        Raises:
            Overloaded, DeadlineExceeded: As `check`.
        """
        usual = self._requested / self._requests if self._requests else SMALLEST
        cost = min(usual, n_bytes) if n_bytes else usual
        self.check(max(cost, SMALLEST), deadline=deadline)

    @property
    def _drain_seconds(self) -> float:
        """Until all that waits has begun."""
        return self.seconds(self.waiting_cost) / self._n_workers


def _retry_after(seconds: float) -> int:
    return min(60, max(1, math.ceil(seconds)))
