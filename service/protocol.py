"""HTTP/1.1 as it is taken here: uvicorn's protocol, with bounds on heads, on time and on readers.

uvicorn's own takes heads of any size and waits for ever: for the rest of a request, and for a
client that does not read its answer. Failures found here go through the application like any
other, so that they are answered in the same form, logged and counted.
"""

import asyncio
import contextlib
import enum
import fcntl
import struct
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from service.errors import (
    HeadersTooLarge,
    MalformedRequest,
    RequestTimeout,
    ServiceError,
    TooManyConnections,
)
from service.transport import LingeringTransport

MAX_HEAD_BYTES = 16384
MAX_FIELDS = 100
# Framing may cost this many times the body: six bytes a chunk of one.
MAX_FRAMING = 8
READ_CHECK_SECONDS = 5.0
READ_BYTES = 65536  # that a client takes between two checks, or half of what there is

SPECIAL_FIELDS = frozenset({b"connection", b"transfer-encoding"})  # the cycle acts on them
TOGETHER_BYTES = 65536  # of a body that is joined to its head; a longer one is not copied for it

Fields = Sequence[tuple[bytes, bytes]]

STATE = "maskwright"  # the key of a request's `Receipt` in its scope's state


@dataclass(slots=True)
class Receipt:
    """How a request came in.

    Attributes:
        error: Why it could not be taken in whole; it is answered with this.
        answer: Writes an answer that is there as a whole (status, head fields, body) at once; gives
            False, and writes nothing, where it has to go the general way.
    """

    error: ServiceError | None = None
    answer: Callable[[int, Fields, bytes], bool] | None = None


class Stage(enum.Enum):
    """What a connection's next byte belongs to."""

    IDLE, HEAD, BODY = range(3)


class Config(uvicorn.Config):
    """uvicorn's settings, and ours.

    Args:
        receive_seconds: From a request's first byte to its last, at most.
        max_body_bytes: Of a body; the application checks it exactly, this bounds what frames it.
        max_connections: Held at once.
    """

    def __init__(
        self,
        app: Any,
        *,
        receive_seconds: float,
        max_body_bytes: int,
        max_connections: int,
        **options: Any,
    ) -> None:
        super().__init__(app, http=Protocol, ws="none", **options)
        self.draining = False  # then each connection closes with its next answer
        self.receive_seconds = receive_seconds
        self.max_body_bytes = max_body_bytes
        self.max_connections = max_connections


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = cast(Config, config)
        self._stage = Stage.IDLE
        self._n_received = 0  # bytes of the head or the body that is coming
        self._deaf = False  # nothing that comes is read any more
        self._last: RequestResponseCycle | None = None  # the one that is answered and closes
        self._refusal: ServiceError | None = None
        self._receipt = Receipt()
        self._receive_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or turn it away when there are too many."""
        super().connection_made(LingeringTransport(transport, self._receiving))
        self.on_message_begin()
        self._stage = Stage.IDLE
        limit = self._limits.max_connections
        if len(self.connections) > limit:
            self._refuse(TooManyConnections(limit=limit))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_receive_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, within the limits."""
        if self._deaf or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._n_received += len(data)
        self._start_receive_timer()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            self._go_on_without_upgrade(data[stopped.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._refusal or MalformedRequest())
        else:
            self._check_size()

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read on as HTTP/1.1, which a client that offers another protocol has to allow.

        The parser stops at such an offer for good: a new one is given the head without it.
        """
        fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(line + b"".join(fields) + b"\r\n" + rest)

    def _check_size(self) -> None:
        if self._stage is Stage.HEAD and self._n_received > MAX_HEAD_BYTES:
            self._refuse(_too_large())
        framed = MAX_FRAMING * self._limits.max_body_bytes + MAX_HEAD_BYTES
        if self._stage is Stage.BODY and self._n_received > framed:
            self._refuse(MalformedRequest("The body's framing is larger than any body taken."))

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self._stage, self._n_received = Stage.HEAD, 0
        self._start_receive_timer()
        self.scope |= {"method": "-", "path": "/", "raw_path": b"/", "query_string": b""}
        self._receipt = self.scope["state"][STATE] = Receipt()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer: those are read and dropped."""
        if self._stage is Stage.BODY:
            return
        if len(self.headers) >= MAX_FIELDS:
            self._raise(_too_large())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of a head: check it and start the application."""
        if self.parser.get_method() == b"CONNECT":
            self._raise(MalformedRequest("This is no proxy."))
        if self.parser.should_upgrade():
            return
        n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if n_bytes > MAX_HEAD_BYTES:
            self._raise(_too_large())
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            self._raise(MalformedRequest("A request names exactly one Host."))
        previous = self.cycle
        super().on_headers_complete()
        if previous is self._last and previous is not None:
            previous.keep_alive = True  # this one is answered after it
        if self._limits.draining or self.expect_100_continue:
            self._close_after(self.cycle)
        self._receipt.answer = partial(self._answer, self.cycle)
        self._stage, self._n_received = Stage.BODY, 0

    def _answer(
        self, cycle: RequestResponseCycle, status: int, fields: Fields, body: bytes
    ) -> bool:
        """Write a whole answer at once, as the cycle would in two steps after a look at each field.

        That is one packet in place of two, and one search through the fields for two of each.
        """
        lengths = [int(value) for name, value in fields if name == b"content-length"]
        head = b"".join([b"%b: %b\r\n" % field for field in fields])
        general = (
            cycle.response_started
            or cycle.disconnected
            or self.flow.write_paused
            or cycle.scope["method"] == "HEAD"
            or lengths != [len(body)]
            or HEADER_VALUE_RE.search(b"".join(value for _, value in fields))  # it refuses those
            or any(name in SPECIAL_FIELDS for name, _ in fields)
        )
        if general:
            return False
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        close = b"" if cycle.keep_alive else b"connection: close\r\n"
        defaults = [b"%b: %b\r\n" % field for field in cycle.default_headers]
        parts = [STATUS_LINE[status], *defaults, head, close, b"\r\n"]
        if len(body) <= TOGETHER_BYTES:
            parts.append(body)
        self.transport.write(b"".join(parts))
        if len(body) > TOGETHER_BYTES:
            self.transport.write(body)
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def on_message_complete(self) -> None:
        """A request's last byte."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._stage = Stage.IDLE
        self._stop_receive_timer()
        if self.cycle.response_complete and not self.transport.is_closing():
            # It was answered before it had come in whole: now the connection is idle.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def shutdown(self) -> None:
        """Close with the last answer that is owed; until then, take what is on its way."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._close_after(self.cycle)

    @property
    def unused(self) -> bool:
        """Whether its client has connected and sent nothing yet."""
        return self.cycle is None and self._stage is Stage.IDLE

    def close_if_idle(self) -> None:
        """Close a connection on which nothing is asked."""
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self._stage is Stage.IDLE:
            self.transport.close()

    def on_response_complete(self) -> None:
        """An answer has been written; whether it is read is watched."""
        super().on_response_complete()
        self._watch_reader()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered: watch it."""
        super().pause_writing()
        self._watch_reader()

    def _close_after(self, cycle: RequestResponseCycle) -> None:
        if cycle.keep_alive:
            cycle.keep_alive, self._last = False, cycle

    def _receiving(self) -> bool:
        return self._stage is not Stage.IDLE

    def _watch_reader(self) -> None:
        if self._read_timer is None and (left := self._undelivered()):
            self._read_timer = self.loop.call_later(
                READ_CHECK_SECONDS, self._check_reader, left, self._n_written() - left
            )

    def _check_reader(self, left: int, taken: int) -> None:
        """Let a client go that has taken next to nothing of `left` bytes since the last look.

        What it took is counted over all answers: the newest may be on its way at either look.
        """
        self._read_timer = None
        now = self._n_written() - self._undelivered()
        if now - taken < min(READ_BYTES, left / 2):
            self.transport.abort()
        else:
            self._watch_reader()

    def _n_written(self) -> int:
        return cast(LingeringTransport, self.transport).n_written

    def _undelivered(self) -> int:
        """Bytes that the client has not taken: ours, and the kernel's for it."""
        connection = self.transport.get_extra_info("socket")
        n_bytes = self.transport.get_write_buffer_size()
        with contextlib.suppress(OSError, ValueError):  # closed, or no such question here
            (queued,) = struct.unpack(
                "i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"0000")
            )
            n_bytes += queued
        return n_bytes

    def _start_receive_timer(self) -> None:
        if self._receive_timer is None:
            self._receive_timer = self.loop.call_later(
                self._limits.receive_seconds, self._receive_deadline
            )

    def _stop_receive_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _receive_deadline(self) -> None:
        self._receive_timer = None
        if self.flow.read_paused:  # not the client's fault
            self._start_receive_timer()
        elif self._stage is Stage.IDLE:
            self.close_if_idle()  # it has sent nothing at all, or line breaks
        else:
            self._refuse(RequestTimeout(limit_s=self._limits.receive_seconds))

    def _raise(self, error: ServiceError) -> None:
        """End the parsing from within one of its callbacks."""
        self._refusal = error
        raise error

    def _refuse(self, error: ServiceError) -> None:
        """Answer what is coming in with a failure, after what came before it, and close."""
        self._deaf = True
        self._stop_receive_timer()
        self._receipt.error = error
        if self._stage is Stage.BODY:
            if self.cycle.response_complete:
                self.transport.close()
            self.cycle.keep_alive = False
            self.cycle.message_event.set()  # whoever reads the body is told by the receipt
            return
        self._stage = Stage.BODY
        previous = self.cycle
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        if previous is None or previous.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))


def _too_large() -> HeadersTooLarge:
    return HeadersTooLarge(n_bytes=MAX_HEAD_BYTES, n_fields=MAX_FIELDS)
