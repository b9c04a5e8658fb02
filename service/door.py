"""What every request passes: limits, keys, the queue's mind, its log line and its counts.

Plain ASGI and outermost, so that a refused request costs little and nothing goes unseen.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BodyTooLarge, Draining, Internal, ServiceError
from service.lifecycle import Lifecycle
from service.metrics import Metrics, counted_as
from service.protocol import STATE, Receipt
from service.record import Record, begin, read_deadline
from service.security import OPEN_PATHS, Keys
from service.tracing import Tracer

PROBES = OPEN_PATHS | {"/metrics"}  # logged only when they fail

logger = logging.getLogger("service.requests")

Render = Callable[[Request, Exception], Awaitable[Response]]


class Door:
    """The application, behind its checks.

    Args:
        render: Turns a failure into its answer.
        admit: Asked before the body of a request that computes is read; raises to refuse it.
        timed: Routes whose latency is measured.
        open_paths: Answered without a key.
        tracer: Where spans of requests go, if anywhere.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        lifecycle: Lifecycle,
        keys: Keys,
        max_body_bytes: int,
        render: Render,
        admit: Callable[[Record], None],
        timed: frozenset[str],
        open_paths: frozenset[str],
        tracer: Tracer | None = None,
    ) -> None:
        self._app, self._metrics, self._lifecycle = app, metrics, lifecycle
        self._keys, self._max_body_bytes = keys, max_body_bytes
        self._render, self._admit, self._timed = render, admit, timed
        self._open_paths, self._tracer = open_paths, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # answered, counted and logged as GET, of which the server
            scope = {**scope, "method": "GET"}  # sends the head alone
        record = begin(scope["headers"])
        # Taken out of the scope, which it leads back to: else each request would be a cycle.
        receipt: Receipt = scope.get("state", {}).pop(STATE, None) or Receipt()
        answer = _Answer(send, record, receipt)
        self._metrics.http_in_flight.inc()
        try:
            await self._handle(scope, receive, answer, receipt, record)
        finally:
            self._metrics.http_in_flight.dec()
            self._note(scope, answer, record)

    async def _handle(
        self,
        scope: Scope,
        receive: Receive,
        answer: "_Answer",
        receipt: Receipt,
        record: Record,
    ) -> None:
        try:
            self._check(scope, receipt, record)
            with self._keys.held(record.key):
                await self._app(scope, self._bounded(receive, receipt), answer)
        except ServiceError as error:
            await self._fail(error, scope, receive, answer)
        except asyncio.CancelledError:  # the deadline of the drain has passed
            if not self._lifecycle.draining or answer.started:
                raise
            await self._fail(Draining(), scope, receive, answer)
        except Exception as error:
            # The application's own handler has answered and logged, unless it was what failed.
            if not answer.started:
                logger.exception("a request failed", exc_info=error)
                await self._fail(Internal(), scope, receive, answer)

    def _check(self, scope: Scope, receipt: Receipt, record: Record) -> None:
        """Refuse what need not be read."""
        if receipt.error is not None:
            raise receipt.error
        asks_first = scope["method"] == "OPTIONS"  # a browser, without the key, whether it may
        if not asks_first and scope["path"] not in self._open_paths:
            record.key = self._keys.check(record.headers.get(b"authorization"))
        read_deadline(record)
        if record.n_body > self._max_body_bytes:
            raise BodyTooLarge(limit=self._max_body_bytes, n_bytes=record.n_body)
        if scope["method"] == "POST":
            self._admit(record)

    def _bounded(self, receive: Receive, receipt: Receipt) -> Receive:
        """`receive` that raises when the body is too large, too slow or broken."""
        n_received = 0

        async def bounded() -> Message:
            nonlocal n_received
            message = await receive()
            if message["type"] == "http.request":
                if receipt.error is not None:
                    raise receipt.error
                n_received += len(message.get("body", b""))
                if n_received > self._max_body_bytes:
                    raise BodyTooLarge(limit=self._max_body_bytes)
            return message

        return bounded

    async def _fail(
        self, error: ServiceError, scope: Scope, receive: Receive, answer: "_Answer"
    ) -> None:
        if answer.started:  # too late to say so in an answer; the server closes the connection
            raise error
        response = await self._render(Request(scope), error)
        await response(scope, receive, answer)

    def _note(self, scope: Scope, answer: "_Answer", record: Record) -> None:
        """Count and log a request that has ended."""
        seconds = time.perf_counter() - record.begun
        route = template_of(scope, self._timed)
        method = "other" if route == "other" else scope["method"]
        counted = counted_as(route)
        self._metrics.http_requests.labels(counted, method, f"{answer.status // 100}xx").inc()
        if route in self._timed:
            self._metrics.http_seconds.labels(counted).observe(seconds)
        probe = route in PROBES
        level = logging.DEBUG if probe and answer.status < 400 else logging.INFO
        if logger.isEnabledFor(level):
            fields = _fields(record, route, scope["method"], answer.status, seconds)
            # As `logger.log`, but without a walk up the stack for this very line.
            line = logger.makeRecord(
                logger.name, level, __file__, 0, "request", (), None, extra={"fields": fields}
            )
            logger.handle(line)
        if self._tracer and not probe:
            self._tracer.write(record, scope, route=route, status=answer.status, seconds=seconds)


class _Answer:
    """An answer on its way: what it is, and what each one carries.

    Its head waits for its body: most are whole then, and written at once.
    """

    def __init__(self, send: Send, record: Record, receipt: Receipt) -> None:
        self._send, self._receipt = send, receipt
        self.started, self.status = False, 500
        self._head: Message | None = None
        self._headers = [
            (b"x-request-id", record.request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._head = {**message, "headers": [*message["headers"], *self._headers]}
            return
        head, self._head = self._head, None
        self.started = True
        if head is not None:
            whole, body = not message.get("more_body"), message.get("body", b"")
            write = self._receipt.answer
            if whole and write and write(self.status, head["headers"], body):
                return
            await self._send(head)
        await self._send(message)


def template_of(scope: Scope, posted: Iterable[str]) -> str:
    """The template of a request's path, or "other": a scanner must not make a series of each guess.

    Args:
        posted: Templates that are looked up for a request that was refused before its routing.
    """
    matched, method = scope.get("route"), scope["method"]
    if isinstance(matched, APIRoute):
        return matched.path if method in (matched.methods or ()) else "other"
    if method != "POST":
        return "other"
    return next((t for t in posted if _pattern(t)[0].match(scope["path"])), "other")


_pattern = lru_cache(compile_path)


def _fields(
    record: Record, route: str, method: str, status: int, seconds: float
) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": record.request_id, "route": route, "method": method, "status": status,
    }  # fmt: skip
    if record.code:
        fields["code"] = record.code
    if record.key:
        fields["key"] = record.key
    if record.n_texts:
        fields |= {"texts": record.n_texts, "tokens": record.n_tokens}
        fields |= {f"{name}_ms": round(1000 * s, 3) for name, s in record.seconds().items()}
    return fields | {"total_ms": round(1000 * seconds, 3)}
