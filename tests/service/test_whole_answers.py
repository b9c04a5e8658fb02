"""Answers on the wire: one write where they are whole, and no trace of a request that has ended."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from service.protocol import TOGETHER_BYTES, Config, Protocol

BODY = b'{"inputs": "to be"}'
EMBED = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Wire(asyncio.Transport):
    """A connection's other end: keeps what is written."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed, self._wrote = False, asyncio.Event()
        self.protocol = Protocol(config, ServerState(), {})
        self.protocol.connection_made(self)

    async def ask(self, data: bytes) -> list[bytes]:
        """What is written in answer to a request."""
        self.written.clear()
        self.protocol.data_received(data)
        async with asyncio.timeout(10):
            while not self.protocol.cycle.response_complete:
                await self._wrote.wait()
                self._wrote.clear()
        return list(self.written)

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))
        self._wrote.set()

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def configured(app: Any) -> Config:
    limits = {"receive_seconds": 9.0, "max_body_bytes": 9000, "max_connections": 9}
    config = Config(app, **limits, lifespan="off", log_config=None, access_log=False)
    config.load()
    return config


@pytest_asyncio.fixture
async def wire(app: FastAPI) -> AsyncIterator[Wire]:
    async with app.router.lifespan_context(app):
        made = Wire(configured(app))
        yield made
        made.protocol.connection_lost(None)


async def test_a_whole_answer_is_one_write_with_its_fields(wire: Wire) -> None:
    (answer,) = await wire.ask(EMBED)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head
    assert b"\r\nx-request-id: " in head
    assert b"connection:" not in head
    (again,) = await wire.ask(EMBED)  # on the same connection
    assert again.partition(b"\r\n\r\n")[2] == body


async def test_a_client_that_asks_to_close_is_told_so_and_let_go(wire: Wire) -> None:
    closing = EMBED.replace(b"Host: a", b"Host: a\r\nConnection: close")
    (answer,) = await wire.ask(closing)
    assert b"\r\nconnection: close\r\n" in answer
    assert wire.closed


async def test_head_is_answered_without_a_body(wire: Wire) -> None:
    answer = b"".join(await wire.ask(b"HEAD /livez HTTP/1.1\r\nHost: a\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


async def test_a_large_body_is_not_copied_behind_its_head(wire: Wire) -> None:
    head, body = await wire.ask(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
    assert len(body) > TOGETHER_BYTES
    assert head.endswith(b"\r\n\r\n")


async def test_a_request_that_has_ended_leaves_nothing_to_collect(wire: Wire) -> None:
    await wire.ask(EMBED)
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            await wire.ask(EMBED)
        n_alive = sum(type(each) is RequestResponseCycle for each in gc.get_objects())
        assert n_alive <= 2  # the connection's newest
        assert gc.collect() < 50
    finally:
        gc.enable()
