"""The processes that are measured, and windows of load on them."""

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from service.load import Driver, Load
from service.workload import Sample, asks

START_SECONDS = 120.0


@contextlib.contextmanager
def ours(artefact: Path, *flags: str) -> Iterator[tuple[str, int]]:
    """`maskwright-serve` on an artefact: its URL and process id."""
    command = [sys.executable, "-m", "service.cli", "--model", str(artefact), "--port", "0"]
    command += ["--drain-delay", "0", "--max-wait-seconds", "60", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        greeting = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://\S+", greeting)
        if found is None:
            raise RuntimeError(f"{' '.join(command)} did not start")
        yield found.group(), process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def plain(artefact: Path) -> Iterator[tuple[str, int]]:
    """The plain server on the same artefact."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "tests.bench.plain:app", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--no-access-log"],
        env={**os.environ, "ARTEFACT": str(artefact)},
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    parts = urlsplit(url)
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((parts.hostname, parts.port)):
            return
        time.sleep(0.1)
    raise RuntimeError("the plain server did not start")


def window(
    url: str,
    route: str,
    samples: Sequence[Sample],
    *,
    seconds: float,
    warmup: float,
    connections: int,
    n_texts: int = 1,
    keep_every: int = 0,
) -> Load:
    """One window of closed-loop load."""
    driver = Driver(
        url,
        asks(samples, url, route, n_texts=n_texts),
        seconds=seconds,
        warmup=warmup,
        connections=connections,
        keep_every=keep_every,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(driver.run())


def resident_bytes(pid: int) -> int:
    """Memory of a process that is resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])
