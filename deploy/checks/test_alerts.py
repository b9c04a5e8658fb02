"""Alerts from the cause to Alertmanager and back, with the rules that ship."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from deploy.checks.load import Client
from deploy.checks.parts import (
    DEPLOY,
    exporter,
    free_port,
    process,
    prometheus,
    service,
    wait_until,
)
from service.metrics import Metrics, ModelFacts

# Rules wait a tenth of their time, and everything is looked at each second, unless FULL is set.
PACE = 1 if os.environ.get("FULL") else 15
SCRAPE_SECONDS = 5 if PACE == 1 else 1


@dataclass
class Alertmanager:
    """A running Alertmanager with the configuration that ships."""

    port: int

    def firing(self) -> set[str]:
        """Names of the alerts that it holds."""
        alerts = httpx.get(f"http://127.0.0.1:{self.port}/api/v2/alerts", trust_env=False).json()
        return {alert["labels"]["alertname"] for alert in alerts}


@pytest.fixture(scope="module")
def alertmanager(scratch: Path) -> Iterator[Alertmanager]:
    port, directory = free_port(), scratch / "alertmanager"
    directory.mkdir()
    command = (
        "prometheus-alertmanager",
        f"--config.file={DEPLOY}/alertmanager/alertmanager.yml",
        f"--storage.path={directory}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    ready = f"http://127.0.0.1:{port}/-/ready"
    with process(*command, log=directory / "log", ready=ready):
        yield Alertmanager(port)


def rule_seconds(name: str) -> float:
    """How long an alert may take: what its rule waits for, an evaluation, two scrapes, and a
    second for Prometheus to tell Alertmanager."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules" / "alerts.yml").read_text())
    (rule,) = [r for g in rules["groups"] for r in g["rules"] if r["alert"] == name]
    waits = float(rule["for"].removesuffix("m")) * 60 / PACE
    return waits + 2 * max(1, 15 / PACE) + 2 * SCRAPE_SECONDS + 1


def check(
    alertmanager: Alertmanager, scratch: Path, name: str, port: int, cause: Any, cure: Any
) -> None:
    """The alert comes after the cause, in time, and goes after the cure."""
    directory = scratch / name
    with prometheus(
        directory, {"maskwright": [port]}, pace=PACE, alertmanager=alertmanager.port
    ) as watching:
        wait_until(lambda: watching.query("up == 1"), seconds=20, what="a first scrape")
        assert name not in alertmanager.firing()
        cause()
        allowed = rule_seconds(name)
        took = wait_until(
            lambda: name in alertmanager.firing(), seconds=allowed, what=f"{name} fires"
        )
        print(f"\n{name}: {took:.1f} s after its cause; {allowed:.0f} s allowed")
        cure()
        # Prometheus tells at once that an alert is over; Alertmanager then drops it.
        wait_until(
            lambda: name not in alertmanager.firing(), seconds=120, what=f"{name} is resolved"
        )


def test_a_service_that_is_stopped_is_reported_and_its_return_too(
    alertmanager: Alertmanager, scratch: Path
) -> None:
    port, log = free_port(), scratch / "stopped.log"
    first = service(port=port, log=log)
    first.__enter__()
    second = service(port=port, log=log)
    try:
        check(
            alertmanager,
            scratch,
            "MaskwrightDown",
            port,
            cause=lambda: first.__exit__(None, None, None),
            cure=second.__enter__,
        )
    finally:
        second.__exit__(None, None, None)


def test_a_queue_that_stays_full_is_reported(alertmanager: Alertmanager, scratch: Path) -> None:
    port, over = free_port(), threading.Event()
    body = {"inputs": ["to be or not to be that is the question"] * 10}

    async def overload() -> None:
        async def one() -> None:
            client = Client(port)
            while not over.is_set():
                status, _, _ = await client.post("/embed", body)
                await asyncio.sleep(0.02 if status == 429 else 0)
            client.close()

        await asyncio.gather(*(one() for _ in range(64)))

    load = threading.Thread(target=lambda: asyncio.run(overload()), daemon=True)
    # No refusal by predicted wait: a slow machine would never fill the queue.
    flags = ("--threads", "1", "--max-queue-cost", "8000", "--max-wait-seconds", "60")
    with service(*flags, port=port, log=scratch / "overload.log"):
        try:
            check(
                alertmanager,
                scratch,
                "MaskwrightQueueFilling",
                port,
                cause=load.start,
                cure=over.set,
            )
        finally:
            over.set()
            load.join(timeout=60)


def test_a_provider_that_was_not_asked_for_is_reported(
    alertmanager: Alertmanager, scratch: Path
) -> None:
    """From the service's own metrics: the service itself refuses to start so."""

    def text(requested: str) -> str:
        metrics = Metrics(CollectorRegistry())
        facts = {"name": "a", "mixer": "mhsa", "sha256": "0" * 64, "precision": "fp32"}
        metrics.know_model(
            ModelFacts(**facts, provider="cpu", provider_requested=requested, runtime_version="1")
        )
        metrics.ready.set(1)
        return generate_latest(metrics.registry).decode()

    state = {"requested": "cpu"}
    with exporter(lambda: text(state["requested"])) as port:
        check(
            alertmanager,
            scratch,
            "MaskwrightProviderMismatch",
            port,
            cause=lambda: state.update(requested="cuda"),
            cure=lambda: state.update(requested="cpu"),
        )
