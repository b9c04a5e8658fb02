"""The service, in this process and as a server of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from service.app import create_app
from service.models import Model, load_model
from service.registry import Registry
from service.settings import Settings


@pytest.fixture(scope="session")
def model_of(artefact_of: Callable[..., Path]) -> Callable[..., Model]:
    """Gives a tiny model, loaded once in a test run."""
    loaded: dict[Path, Model] = {}

    def load(mixer: str = "mhsa", *, tokenizer: str = "char") -> Model:
        path = artefact_of(mixer, tokenizer=tokenizer)
        if path not in loaded:
            loaded[path] = load_model(str(path), device="cpu")
        return loaded[path]

    return load


@pytest.fixture(scope="session")
def bundled() -> Model:
    """A model that ships, for tests to which it does not matter which one answers."""
    return load_model("shakespeare-mhsa", device="cpu")


@contextlib.asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application between its start and its end."""
    # An unforeseen failure must reach the client as its answer, as it does behind a server.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        yield client


@pytest_asyncio.fixture(params=["mhsa", "mlp_mixer"])
async def client(
    request: pytest.FixtureRequest, model_of: Callable[..., Model]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with each mixer."""
    app = create_app(Settings(), Registry([model_of(request.param)]), n_workers=2)
    async with running(app) as client:
        yield client


@pytest_asyncio.fixture
async def app(model_of: Callable[..., Model]) -> FastAPI:
    """The service with default settings, not started."""
    return create_app(Settings(), Registry([model_of()]), n_workers=1)


@dataclass(frozen=True)
class Server:
    """A server process."""

    process: subprocess.Popen[str]
    url: str
    log: TextIO

    def lines(self) -> list[str]:
        """What it has logged; whole once it has ended."""
        self.log.seek(0)
        return self.log.read().splitlines()

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextlib.contextmanager
def server_process(
    *flags: str, cwd: Path | None = None, module: Sequence[str] = ("service.cli",)
) -> Iterator[Server]:
    """`maskwright-serve` on a free port, greeted; of a small model unless another is named."""
    environment = {"MASKWRIGHT_MODEL": "shakespeare-mhsa", **os.environ}
    command = [sys.executable, "-m", *module, "--port", "0", "--drain-delay", "0", *flags]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=cwd, env=environment
        )
        try:
            greeting = process.stdout.readline() if process.stdout else ""
            found = re.search(r"http://\S+", greeting)
            log.seek(0)
            assert found, f"no greeting: {log.read()}"
            yield Server(process, found.group(), log)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def bundled_server() -> Iterator[Server]:
    """A server of two bundled models, for tests that leave it as it was."""
    names = ("shakespeare-mhsa", "shakespeare-mlp-mixer")
    with server_process(*(flag for name in names for flag in ("--model", name))) as server:
        yield server
