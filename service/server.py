"""The HTTP server: uvicorn, one process a device, a greeting, and an end that loses nothing."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.app import create_admin
from service.memory import settle
from service.protocol import Config, Protocol
from service.reload import ReloadFailed
from service.settings import Settings

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 75  # above the 60 s after which proxies let an idle connection go
BACKLOG = 2048
FAILED_SECONDS = 3.0  # from a failure to the end of the process, at most
FIRST_SECONDS = 1.0  # that a new connection has for its first request when the end has come
SETTLE_SECONDS = 0.05  # what was sent before the end became known is read


class Server(uvicorn.Server):
    """uvicorn that says when it is ready, drains on SIGTERM, and exits with 0.

    SIGTERM: not ready, but answering for `drain_delay` seconds, until balancers know; then no new
    connections; then what is open is finished, for at most `drain_seconds`. SIGINT, and a second
    signal, skip the delay; a second SIGINT ends at once.
    """

    config: Config

    def __init__(self, app: FastAPI, settings: Settings, *, greeting: str) -> None:
        super().__init__(_config(app, settings, host=settings.host, port=settings.port))
        self._app, self._settings, self._greeting = app, settings, greeting
        self._admin: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self.n_cut = 0  # requests that were not finished in time

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say where."""
        await super().startup(sockets)
        if self.started:
            self._app.state.metrics.http_connections.set_function(
                lambda: len(self.server_state.connections)
            )
            self._app.state.lifecycle.when_failed(self._fail)
            await self._start_admin()
            settle()
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            print(f"{self._greeting} on http://{host}:{port}", flush=True)  # noqa: T201

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGTERM and SIGINT; uvicorn's own would raise them again afterwards."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Say that the end is near; stop once balancers had time to hear it."""
        if sig == signal.SIGINT or self._ending:
            self._hurry.set()
        if self._ending:
            super().handle_exit(sig, frame)  # a second SIGINT ends at once
        else:
            self._ending = asyncio.get_running_loop().create_task(self._drain())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, finish what is open, and end."""
        self.config.draining = True
        await self._close_listeners()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(SETTLE_SECONDS)
        self._close_idle(unused=False)
        for _ in range(round(FIRST_SECONDS / SETTLE_SECONDS)):
            if not any(connection.unused for connection in self._connections()):
                break
            await asyncio.sleep(SETTLE_SECONDS)
        self._close_idle(unused=True)
        await self._finish()
        if not self.force_exit:
            await self.lifespan.shutdown()
        if self._admin is not None:
            self._admin.close()

    def _connections(self) -> list[Protocol]:
        return [c for c in self.server_state.connections if isinstance(c, Protocol)]

    def _close_idle(self, *, unused: bool) -> None:
        """Close what nothing is asked on; a connection that is new only if `unused`."""
        for connection in self._connections():
            if unused or not connection.unused:
                connection.close_if_idle()

    async def _start_admin(self) -> None:
        """Listen on the admin port, if there is one."""
        settings = self._settings
        if not settings.admin_port:
            return
        config, state = _config(create_admin(self._app), settings), uvicorn.server.ServerState()
        config.load()
        try:
            self._admin = await asyncio.get_running_loop().create_server(
                lambda: Protocol(config, state, {}), settings.admin_host, settings.admin_port
            )
        except OSError as error:
            logger.error("admin port: %s", error.strerror)
            await self.lifespan.shutdown()
            sys.exit(1)

    def _reload(self) -> None:
        """SIGHUP: read models and keys anew; the log tells how it went."""

        async def reload() -> None:
            with contextlib.suppress(ReloadFailed):
                await self._app.state.reloader.reload()

        task = asyncio.get_running_loop().create_task(reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail(self) -> None:
        """The service cannot go on: end, without the delay, and with another status than 0."""
        self._hurry.set()
        self.should_exit = True
        # Whatever happens, a thread that hangs included.
        last_resort = threading.Timer(FAILED_SECONDS, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()

    async def _drain(self) -> None:
        self._app.state.lifecycle.drain()
        self.config.draining = True
        logger.info("draining: %d connections are open", len(self.server_state.connections))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_delay):
                await self._hurry.wait()
        self.should_exit = True

    async def _close_listeners(self) -> None:
        """Stop listening, but first take what the kernel has accepted in our name."""
        pending: list[socket.socket] = []
        for server in self.servers:
            kept = _duplicates(server)
            server.close()
            for listening in kept:
                with listening, contextlib.suppress(BlockingIOError):
                    listening.setblocking(False)
                    # At one go: whoever is answered in between may come again, without an end.
                    while True:
                        pending.append(listening.accept()[0])
        for connection in pending:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)

    async def _finish(self) -> None:
        """Wait for open requests; what is not done by the deadline is answered 503."""
        state, loop = self.server_state, asyncio.get_running_loop()
        allowed = self._settings.drain_seconds
        if self._app.state.lifecycle.failure:
            allowed = min(allowed, FAILED_SECONDS / 2)
        deadline = loop.time() + allowed
        while (state.connections or state.tasks) and not self.force_exit:
            if loop.time() > deadline:
                self.n_cut = len(state.tasks)
                logger.error("%d requests were not finished in time", self.n_cut)
                for task in list(state.tasks):
                    task.cancel()
                await asyncio.sleep(SETTLE_SECONDS)  # for their answers to be sent
                return
            await asyncio.sleep(0.02)


def _duplicates(server: Any) -> list[socket.socket]:
    """Second handles of a server's listening sockets, which outlive it."""
    return [
        socket.socket(listening.family, listening.type, fileno=socket.dup(listening.fileno()))
        for listening in server.sockets
    ]


def _config(app: Any, settings: Settings, **where: Any) -> Config:
    return Config(
        app,
        **where,
        receive_seconds=settings.receive_seconds,
        max_body_bytes=settings.max_body_bytes,
        max_connections=settings.max_connections,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no address of a client is read
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def serve(app: FastAPI, settings: Settings, *, greeting: str) -> int:
    """Serve until a signal.

    Returns:
        0 after a clean end; 1 if the address cannot be had, the service failed, or requests were
        cut off.
    """
    server = Server(app, settings, greeting=greeting)
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it could not listen; it has logged why
        print("maskwright-serve: the server could not start", file=sys.stderr)  # noqa: T201
        return 1
    return 1 if server.n_cut or app.state.lifecycle.failure else 0
