"""Replicas that the chart would ask for: its queries on the real Prometheus, under real load."""

import asyncio
import math
import os
import re
import ssl
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from deploy.checks.load import Client
from deploy.checks.parts import Prometheus, free_port, prometheus, service, wait_until
from deploy.checks.test_edge import edge
from deploy.checks.test_static import CHART, HELM, assert_passes

# Windows of the queries are a sixth of what they are, unless FULL is set.
PACE = 1 if os.environ.get("FULL") else 6
N_REPLICAS, MAX_QUEUE_COST, COST_PER_REPLICA = 2, 4608, 2100
TEXT = "to be or not to be that is the question whether it is nobler in "
COST = 64  # its tokens
NAMES = {"namespace": "prod", "pod": "release-maskwright-0"}


@dataclass
class Seen:
    """What clients saw of a load, and what the triggers made of it."""

    seconds: list[float] = field(default_factory=list)  # of each answer
    refused: int = 0
    values: dict[str, float] = field(default_factory=dict)  # by trigger
    replicas: dict[str, int] = field(default_factory=dict)


@dataclass
class Scaled:
    """Replicas behind the proxy, and the Prometheus that KEDA would ask about them."""

    port: int
    tls: ssl.SSLContext
    prometheus: Prometheus
    triggers: list[dict[str, Any]]

    def look(self, seen: Seen) -> None:
        """Evaluate every trigger as KEDA and the autoscaler of Kubernetes do."""
        for trigger in self.triggers:
            query = re.sub(
                r"\[(\d)m\]",
                lambda window: f"[{60 * int(window[1]) // PACE}s]",
                trigger["metadata"]["query"],
            )
            (result,) = self.prometheus.query(query)  # KEDA takes one value and no other
            value = float(result["value"][1])
            ratio = value / float(trigger["metadata"]["threshold"])
            # AverageValue, KEDA's default, is shared by all replicas; Value is of each.
            n = N_REPLICAS if trigger.get("metricType") == "Value" else 1
            seen.values[trigger["name"]] = value
            seen.replicas[trigger["name"]] = math.ceil(n * ratio)

    def load(self, n_clients: int) -> Seen:
        """So many clients, each with one request open, for as long as the triggers look back."""
        seen, over, flowing = Seen(), asyncio.Event(), asyncio.Event()

        async def one() -> None:
            client = Client(self.port, tls=self.tls)
            while not over.is_set():
                begun = time.monotonic()
                status, _, _ = await client.post("/embed", {"inputs": TEXT})
                if status == 200:
                    seen.seconds.append(time.monotonic() - begun)
                    flowing.set()
                else:
                    assert status == 429
                    seen.refused += 1
                    await asyncio.sleep(0.2)
            client.close()

        async def all_of_them() -> None:
            clients = [asyncio.ensure_future(one()) for _ in range(n_clients)]
            await asyncio.wait_for(flowing.wait(), 60)
            await asyncio.sleep(60 / PACE + 3)
            await asyncio.to_thread(self.look, seen)
            over.set()
            await asyncio.gather(*clients)

        asyncio.run(all_of_them())
        print(f"\n{n_clients} clients: {seen.values} -> {seen.replicas}")
        return seen


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scaled]:
    directory = tmp_path_factory.mktemp("scaling")
    values = ("--values", CHART / "examples" / "gpu-autoscaled.yaml")
    set_ = ("--set", f"autoscaling.queueCostPerReplica={COST_PER_REPLICA}")
    made = assert_passes(HELM, "template", "release", CHART, *values, *set_, "--namespace", "prod")
    (found,) = [o for o in yaml.safe_load_all(made) if o and o["kind"] == "ScaledObject"]
    ports = [free_port() for _ in range(N_REPLICAS)]
    flags = ("--threads", "1", "--max-queue-cost", str(MAX_QUEUE_COST), "--max-wait-seconds", "60")
    with ExitStack() as stack:
        for port in ports:
            log = directory / f"{port}.log"
            stack.enter_context(service(*flags, "--drain-delay", "0", port=port, log=log))
        listen = stack.enter_context(edge(directory, ports=ports))
        tls = ssl.create_default_context(cafile=directory / "tls.crt")
        tls.check_hostname = False
        watching = stack.enter_context(
            prometheus(directory / "data", {"maskwright": ports}, pace=15, labels=NAMES)
        )
        wait_until(
            lambda: len(watching.query("rate(maskwright_queue_cost[10s])")) == N_REPLICAS,
            seconds=30,
            what="two scrapes of each replica",
        )
        yield Scaled(listen, tls, watching, found["spec"]["triggers"])


def test_without_load_no_trigger_asks_for_a_replica(scaled: Scaled) -> None:
    seen = Seen()
    scaled.look(seen)
    assert seen.replicas == {"queue": 0, "latency": 0, "refusals": 0}


def test_the_queue_asks_for_the_replicas_that_share_what_waits(scaled: Scaled) -> None:
    n_clients = 96
    seen = scaled.load(n_clients)
    waiting = n_clients * COST  # but for what runs, and what is on its way
    assert 0.7 * waiting < seen.values["queue"] <= waiting
    assert seen.replicas["queue"] == math.ceil(waiting / COST_PER_REPLICA) == 3
    assert seen.refused == seen.replicas["refusals"] == 0
    # The latency that clients saw, to within a bucket.
    p95 = statistics.quantiles(seen.seconds, n=20)[-1]
    assert p95 / 3 < seen.values["latency"] < p95 * 3


def test_refusals_ask_for_more_replicas_than_there_are(scaled: Scaled) -> None:
    seen = scaled.load(240)
    assert seen.refused > 0
    assert 0.7 * N_REPLICAS * MAX_QUEUE_COST < seen.values["queue"] <= N_REPLICAS * MAX_QUEUE_COST
    assert seen.values["refusals"] > 1.05
    assert seen.replicas["refusals"] > N_REPLICAS
