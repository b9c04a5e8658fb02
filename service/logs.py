"""Log lines: JSON, or for a person at a terminal; escaped, and without what clients send.

Lines are written by a thread: whoever reads them, a pipe that nobody empties, must not stop the
service. What does not fit into the queue is counted and dropped.
"""

import contextlib
import json
import logging
import queue
import sys
import threading
import time
import traceback
from functools import lru_cache
from typing import Any, TextIO

import orjson

MAX_WAITING = 10_000
FLUSH_SECONDS = 2.0
GATHER_SECONDS = 0.05  # the writer wakes once for the lines of so long, not once for each
MAX_GATHERED = 64
COMPACT = (",", ":")  # as orjson writes
LOGGERS_OF_OTHERS = ("uvicorn.error", "asyncio")


class JsonFormatter(logging.Formatter):
    """One JSON object a line; all but ASCII is escaped, so that no text can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info and record.exc_info[1]:
            line["error"] = _frames(record.exc_info[1])
        try:
            text = orjson.dumps(line).decode()
        except TypeError:  # a lone surrogate
            return json.dumps(line, separators=COMPACT)
        return text if text.isascii() else json.dumps(line, separators=COMPACT)


class TextFormatter(logging.Formatter):
    """The same for a person; control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        extra = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        line = f"{_time(record)} {record.levelname:7} {_escaped(record.getMessage() + extra)}"
        if record.exc_info and record.exc_info[1]:
            frames = _frames(record.exc_info[1])
            line += "".join(f"\n    {_escaped(frame)}" for frame in frames)
        return line


class ThreadedHandler(logging.Handler):
    """Formats on the spot, writes from a thread."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._n_dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line."""
        if self._lines.qsize() >= MAX_WAITING:
            self._n_dropped += 1
            return
        try:
            self._lines.put(self.format(record))
        except Exception:  # a line that cannot be written is no reason to fail  # noqa: BLE001
            self.handleError(record)

    def close(self) -> None:
        """Write what waits, for at most two seconds."""
        self._lines.put(None)
        self._thread.join(FLUSH_SECONDS)
        super().close()

    def _write(self) -> None:
        ended = False
        while not ended:
            lines = self._gathered()
            ended = lines[-1:] == [None]
            self._put([line for line in lines if line is not None])

    def _gathered(self) -> list[str | None]:
        """What waits, up to the None that ends it; if nothing does, what comes after a while."""
        lines: list[str | None] = []
        if self._lines.empty():
            lines.append(self._lines.get())
            if lines != [None]:
                time.sleep(GATHER_SECONDS)
        with contextlib.suppress(queue.Empty):
            while len(lines) < MAX_GATHERED and lines[-1:] != [None]:
                lines.append(self._lines.get_nowait())
        return lines

    def _put(self, lines: list[str]) -> None:
        if self._n_dropped:
            lines.append(self._lost(self._n_dropped))
            self._n_dropped = 0
        if not lines:
            return
        with contextlib.suppress(OSError, ValueError):  # closed: there is nobody to tell
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()

    def _lost(self, n: int) -> str:
        message = f"{n} log lines were dropped: nobody reads them"
        return self.format(logging.LogRecord(__name__, logging.WARNING, "", 0, message, (), None))


def start_logging(*, level: str, style: str) -> ThreadedHandler:
    """Log to standard error, from now on; close the answer at the end.

    Args:
        style: `json`, `text`, or `auto` for text at a terminal.
    """
    # What our lines do not show need not be found out for each of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    text = style == "text" or (style == "auto" and sys.stderr.isatty())
    handler = ThreadedHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in LOGGERS_OF_OTHERS:
        # uvicorn's own "started", "listening"; the greeting says it in one line.
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    return handler


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was logged beside the message, as `extra={"fields": ...}`."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _frames(error: BaseException) -> list[str]:
    """Where an error comes from, and of what kind it is.

    Its message is left out: it may repeat what a client sent.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    chain = _frames(error.__cause__) if error.__cause__ else []
    return [*chain, *places, type(error).__name__]


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(1)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
