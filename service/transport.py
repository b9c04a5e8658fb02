"""A connection's closing, such that the last answer reaches a client that is still sending."""

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_SECONDS = 2.0


class LingeringTransport(asyncio.Transport):
    """A transport whose `close` waits for the client to stop sending.

    Closing a socket on which data has arrived unread makes the kernel reset the connection, and
    the reset can overtake the answer. So the side that sends is closed first; what still comes is
    read and thrown away until the client closes, for at most two seconds.

    Args:
        transport: The real one.
        receiving: Whether a request is still on its way in.
    """

    def __init__(self, transport: asyncio.Transport, receiving: Callable[[], bool]) -> None:
        super().__init__()
        self._transport, self._receiving = transport, receiving
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self.n_written = 0  # bytes, in all

    def close(self) -> None:
        """Close now, or once the client has taken the answer."""
        if self._closing:
            return
        self._closing = True
        if self._transport.is_closing() or not self._receiving():
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def is_closing(self) -> bool:
        """Whether nothing more is written."""
        return self._closing or self._transport.is_closing()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._transport.abort()

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        """Send."""
        if not self._closing:
            self.n_written += len(data)
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Let the client wait."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Bytes the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket's addresses and the like."""
        return self._transport.get_extra_info(name, default)
