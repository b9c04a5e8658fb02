"""Counters and histograms that find their children, and count, quickly.

The library's `labels` checks and converts its arguments and takes a lock at each call, and so does
counting. Adding to a number needs no lock here: CPython gives no other thread a turn between its
reading and its writing.
"""

from bisect import bisect_left
from typing import Any

import prometheus_client


class Counter(prometheus_client.Counter):
    """A counter that keeps its children by their label values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._kept: dict[tuple[str, ...], Counter] = {}
        super().__init__(*args, **kwargs)

    def labels(self, *values: str) -> "Counter":  # type: ignore[override]
        """The child of these label values."""
        child = self._kept.get(values)
        if child is None:
            child = self._kept[values] = super().labels(*values)
        return child

    def inc(self, amount: float = 1.0, exemplar: dict[str, str] | None = None) -> None:
        """Count; exemplars are not kept."""
        self._value._value += amount

    def remove(self, *values: str) -> None:
        """Drop the child of these label values."""
        self._kept.pop(values, None)
        super().remove(*values)


class Histogram(prometheus_client.Histogram):
    """A histogram that keeps its children by their label values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._kept: dict[tuple[str, ...], Histogram] = {}
        super().__init__(*args, **kwargs)

    def labels(self, *values: str) -> "Histogram":  # type: ignore[override]
        """The child of these label values."""
        child = self._kept.get(values)
        if child is None:
            child = self._kept[values] = super().labels(*values)
        return child

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Count one amount in its bucket; exemplars are not kept."""
        self._sum._value += amount
        self._buckets[bisect_left(self._upper_bounds, amount)]._value += 1.0

    def remove(self, *values: str) -> None:
        """Drop the child of these label values."""
        self._kept.pop(values, None)
        super().remove(*values)
