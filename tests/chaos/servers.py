"""Servers under test, whose every log line is searched for what no log may hold."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.client import KEY
from tests.chaos.figures import Figure, at_most
from tests.service import conftest
from tests.service.conftest import Server

# A client's key, and what each text of `tests.chaos.texts` has in it.
NEVER = (KEY, "[MASK]")

_searched: list[int] = []  # a server's lines, and those with any of the above
_found: list[str] = []


@contextlib.contextmanager
def server_process(*flags: str, cwd: Path | None = None) -> Iterator[Server]:
    """A server; when it has ended, its log is searched."""
    with conftest.server_process(*flags, cwd=cwd) as server:
        try:
            yield server
        finally:
            lines = server.lines()
            _searched.append(len(lines))
            _found.extend(line for line in lines if any(secret in line for secret in NEVER))


def logs() -> Figure:
    """What the search of all logs so far has found."""
    name = f"{sum(_searched)} log lines of {len(_searched)} servers"
    return at_most(name, "with a key or a text in them", len(_found), 0)
