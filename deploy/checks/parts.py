"""Real parts on loopback: the service, and Prometheus with the configuration that ships."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def free_port() -> int:
    """A port that nobody uses at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_until(true: Callable[[], Any], *, seconds: float, what: str) -> float:
    """Poll until something is so; the seconds that it took."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        with contextlib.suppress(httpx.HTTPError):
            if true():
                return time.monotonic() - begun
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


@contextlib.contextmanager
def process(
    *command: str | Path, log: Path, ready: str = "", seconds: float = 60
) -> Iterator[subprocess.Popen[bytes]]:
    """A program, until the end of the block; `ready` is the address to wait `seconds` for."""
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "no_proxy": "*"}
    environment["PATH"] += ":/usr/sbin"
    with log.open("ab") as output:
        started = subprocess.Popen(
            list(map(str, command)), stdout=output, stderr=output, env=environment, cwd=log.parent
        )
    try:
        if ready:

            def answers() -> bool:
                assert started.poll() is None, log.read_text()
                return httpx.get(ready).status_code == 200

            wait_until(answers, seconds=seconds, what=ready)
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)
            try:
                started.wait(timeout=40)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


@contextlib.contextmanager
def service(*flags: str, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`maskwright-serve` on a port, ready; of a model so small that the time is the service's."""
    if "--model" not in flags:
        flags = ("--model", "shakespeare-mhsa", *flags)
    command = (sys.executable, "-m", "service.cli", "--device", "cpu", "--port", str(port), *flags)
    with process(*command, log=log, ready=f"http://127.0.0.1:{port}/readyz") as started:
        yield started


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        answer = httpx.post(f"{self.url}/api/v1/query", data={"query": expression}, timeout=30)
        body = answer.json()
        assert body["status"] == "success", f"{expression}: {body}"
        result: list[dict[str, Any]] = body["data"]["result"]
        return result


def at_pace(seconds: str, pace: float) -> str:
    """A duration of a rule file, divided."""
    number, unit = re.fullmatch(r"(\d+)([smh])", seconds).groups()
    whole = int(number) * {"s": 1, "m": 60, "h": 3600}[unit] / pace
    return f"{max(1, round(whole))}s"


@contextlib.contextmanager
def prometheus(
    directory: Path,
    targets: dict[str, list[int]],
    *,
    pace: float = 1,
    alertmanager: int = 0,
    labels: dict[str, str] | None = None,
) -> Iterator[Prometheus]:
    """Prometheus with the configuration and the rules that ship, but for names of hosts.

    Args:
        targets: Ports to scrape by the name of the job; other jobs are left out.
        pace: Divides what rules wait for, and how often they are evaluated; scrapes are every
            second unless it is 1.
        labels: Put on every target.
    """
    (directory / "rules").mkdir(parents=True)
    for path in (DEPLOY / "prometheus" / "rules").glob("*.yml"):
        rules = yaml.safe_load(path.read_text())
        for group in rules["groups"]:
            group["interval"] = at_pace(group["interval"], pace)
            for rule in group["rules"]:
                if "for" in rule:
                    rule["for"] = at_pace(rule["for"], pace)
        (directory / "rules" / path.name).write_text(yaml.safe_dump(rules, sort_keys=False))
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    if pace != 1:
        config["global"]["scrape_interval"] = "1s"
    config["rule_files"] = [f"{directory}/rules/*.yml"]
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [
        f"127.0.0.1:{alertmanager}"
    ]
    jobs = [job for job in config["scrape_configs"] if job["job_name"] in targets]
    for job in jobs:
        job.pop("dns_sd_configs")
        if pace != 1:
            job.pop("scrape_interval", None)
        ports = targets[job["job_name"]]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        job["static_configs"] = [{"targets": addresses, "labels": labels or {}}]
    config["scrape_configs"] = jobs
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    url = f"http://127.0.0.1:{free_port()}"
    command = (
        "prometheus",
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
    )
    with process(*command, log=directory / "prometheus.log", ready=f"{url}/-/ready"):
        yield Prometheus(url)


GPU = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 87
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 40000
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 40000
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 402.5
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 61
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 1755
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1",modelName="A GPU",Hostname="h"} 0
"""


@contextlib.contextmanager
def exporter(text: Callable[[], str]) -> Iterator[int]:
    """The port of an exporter of this text, in Prometheus' format."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
