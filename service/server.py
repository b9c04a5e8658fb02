"""The HTTP server: uvicorn, one process a device, a greeting and a clean end."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.settings import Settings

KEEP_ALIVE_SECONDS = 75  # above the 60 s after which proxies let an idle connection go


class Server(uvicorn.Server):
    """uvicorn that says when it is ready, drains on SIGTERM, and exits with 0."""

    def __init__(self, app: FastAPI, settings: Settings, *, greeting: str) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
            )
        )
        self._app, self._greeting = app, greeting

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen, then say where."""
        await super().startup()
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            print(f"{self._greeting} on http://{host}:{port}", flush=True)  # noqa: T201

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGTERM and SIGINT; uvicorn's own would raise them again afterwards."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Say that the end is near, then stop accepting and finish what is open."""
        self._app.state.lifecycle.drain()
        super().handle_exit(sig, frame)


def serve(app: FastAPI, settings: Settings, *, greeting: str) -> int:
    """Serve until a signal; 0 after a clean end, 1 if the address cannot be had."""
    server = Server(app, settings, greeting=greeting)
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it could not listen; it has logged why
        print("maskwright-serve: the server could not start", file=sys.stderr)  # noqa: T201
        return 1
    return 0
