"""What is known of a request while it is answered: for its log line, its deadline, its key."""

import random
import re
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field

from service.errors import InvalidField

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_TIMEOUT_MS = 3_600_000
PHASES = ("tokenize", "queue", "run")

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class Record:
    """A request.

    Attributes:
        request_id: The client's, if it is well formed, else one of ours.
        begun: When its head had come, as `time.perf_counter` tells.
        n_body: Bytes that its body is announced to have.
        deadline: When its answer is of no more use, on the same clock.
        key: Name of the key it came with.
        code: Of the failure it was answered with.
        n_texts, n_tokens: What it asked to be computed.
        phases: Where its time went: name, when it began, how long it took; of several texts the
            longest.
        headers: What it came with; of a field that came twice the last.
    """

    request_id: str = field(default_factory=lambda: f"{random.getrandbits(64):016x}")
    begun: float = field(default_factory=time.perf_counter)
    n_body: int = 0
    deadline: float | None = None
    key: str | None = None
    code: str | None = None
    n_texts: int = 0
    n_tokens: int = 0
    phases: list[tuple[str, float, float]] = field(default_factory=list)
    headers: dict[bytes, bytes] = field(default_factory=dict)

    def seconds(self) -> dict[str, float]:
        """What all phases of a name took together, by name."""
        totals = dict.fromkeys(PHASES, 0.0)
        for name, _, seconds in self.phases:
            totals[name] += seconds
        return totals


_current: ContextVar[Record | None] = ContextVar("record", default=None)


def current() -> Record:
    """The record of the request that is being answered; a new one where there is none."""
    return _current.get() or Record()


def begin(headers: Headers) -> Record:
    """The record of a request, from now on the current one."""
    record = Record(headers=dict(headers))
    if given := record.headers.get(b"x-request-id"):
        text = given.decode("latin-1")
        if REQUEST_ID.fullmatch(text):
            record.request_id = text
    length = record.headers.get(b"content-length", b"")
    if length.isdigit():
        record.n_body = int(length)
    _current.set(record)
    return record


def read_deadline(record: Record) -> None:
    """Take the client's `x-timeout-ms` into the record.

    Raises:
        InvalidField: It is no number of milliseconds.
    """
    value = record.headers.get(b"x-timeout-ms")
    if value is None:
        return
    if not (value.isdigit() and len(value) <= 7 and 0 < int(value) <= MAX_TIMEOUT_MS):
        raise InvalidField(
            f"x-timeout-ms: a whole number of milliseconds, 1 to {MAX_TIMEOUT_MS}, is wanted."
        )
    record.deadline = record.begun + int(value) / 1000
