"""Metrics that can be trusted: all there from the start, and equal to what clients counted."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import GRAPHS, REFUSALS, TASKS
from service.quick_metrics import Counter, Histogram
from tests.conftest import model_facts
from tests.service.conftest import running

ROOT = Path(__file__).parents[2]
MODEL = "tiny-char-mhsa"


@pytest_asyncio.fixture
async def one(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with running(app) as client:
        yield client


async def scrape(client: httpx.AsyncClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = (await client.get("/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str
) -> float:
    """A sample, of the one model that is served where it has a model."""
    labels = labels | {"model": MODEL}
    found = samples.get(("maskwright_" + name, frozenset(labels.items())))
    del labels["model"]
    return samples["maskwright_" + name, frozenset(labels.items())] if found is None else found


async def test_every_series_is_there_at_zero_before_the_first_request(
    one: httpx.AsyncClient,
) -> None:
    before = await scrape(one)
    for stage in ("tokenize", "total"):
        assert value(before, f"{stage}_seconds_count") == 0
    for stage in ("queue", "run"):
        for graph in GRAPHS:
            assert value(before, f"{stage}_seconds_count", graph=graph) == 0
    for task in TASKS:
        assert value(before, "texts_total", task=task) == 0
        assert value(before, "http_request_duration_seconds_count", route=f"/{task}") == 0
        await one.post(f"/{task}", json={"inputs": "a [MASK]"})
        await one.post(f"/{task}", json={"inputs": 5})
        await one.get(f"/{task}")
    await one.get("/nothing")
    for path in ("/info", "/livez", "/readyz"):
        await one.get(path)
    assert set(await scrape(one)) == set(before)


async def test_there_are_few_enough_series_for_a_scrape_to_be_cheap(
    one: httpx.AsyncClient, app: FastAPI
) -> None:
    alone = len(await scrape(one))
    app.state.metrics.know_model(model_facts("another"))
    assert alone <= 400
    assert len(await scrape(one)) - alone <= 100


async def test_latency_is_told_apart_from_a_quarter_of_a_millisecond_on(
    one: httpx.AsyncClient,
) -> None:
    text = (await one.get("/metrics")).text
    assert 'maskwright_run_seconds_bucket{graph="encode",le="0.00025",model="' in text


@pytest.mark.parametrize("kind", ["recording.yml", "alerts.yml"])
async def test_a_bucket_ends_exactly_where_a_rule_counts_what_is_late(
    one: httpx.AsyncClient, kind: str
) -> None:
    rules = (ROOT / "deploy/prometheus/rules" / kind).read_text()
    buckets = re.findall(r'(\w+_bucket){le="([\d.]+)"}', rules)
    late = re.findall(r"(\w+_bucket)\[\w+\]\)\)\) > ([\d.]+)", rules)
    assert buckets or late
    ends = {(name, dict(labels).get("le")) for name, labels in await scrape(one)}
    assert {*buckets, *late} <= ends


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("/v2/health/live", "/livez"),
        ("/v2/health/ready", "/readyz"),
        ("/health", "/readyz"),
        (f"/v2/models/embed/versions/{MODEL}/ready", "/readyz"),
        (f"/v1/models/{MODEL}", "/v1/models"),
        ("/v2/models/embed", "/v2"),
    ],
)
async def test_routes_that_ask_the_same_are_counted_as_one(
    one: httpx.AsyncClient, path: str, counted: str
) -> None:
    assert (await one.get(path)).status_code == 200
    labels = {"method": "GET", "route": counted, "status_class": "2xx"}
    assert value(await scrape(one), "http_requests_total", **labels) == 1


async def test_counters_equal_the_clients_own_counts(one: httpx.AsyncClient) -> None:
    for n in range(1, 6):
        await one.post("/fill-mask", json={"inputs": ["a [MASK]"] * n})
    for _ in range(3):
        await one.post("/embed", json={"inputs": ["abc", "abcdefgh"]})
    await one.post("/embed", json={"inputs": "x" * 100})
    await one.post("/embed", json={"inputs": ["a"] * 2000})
    await one.post("/attention", json={"inputs": ""})
    after = await scrape(one)
    assert value(after, "texts_total", task="fill-mask") == 15
    assert value(after, "texts_total", task="embed") == 7
    assert value(after, "texts_total", task="attention") == 0
    assert value(after, "truncated_total", task="embed") == 1
    assert value(after, "refused_total", reason="too_large") == 1
    assert value(after, "refused_total", reason="invalid") == 1
    labels = {"method": "POST", "route": "/embed"}
    assert value(after, "http_requests_total", status_class="2xx", **labels) == 4
    assert value(after, "http_requests_total", status_class="4xx", **labels) == 1
    real = 15 * len("a ?") + 3 * (3 + 8) + 32
    assert value(after, "tokens_total", kind="real") == real
    assert value(after, "queue_seconds_count", graph="encode") == 22
    assert value(after, "run_seconds_count", graph="encode") == value(after, "batch_items_count")
    assert value(after, "batch_items_sum") == 22


async def test_a_path_that_no_route_has_makes_no_series_of_its_own(one: httpx.AsyncClient) -> None:
    await one.get("/admin.php?id=1")
    text = (await one.get("/metrics")).text
    assert "admin" not in text
    assert re.search(
        r'http_requests_total\{method="other",route="other",status_class="4xx"\} 1', text
    )


async def test_model_and_providers_are_named(one: httpx.AsyncClient) -> None:
    info, samples = (await one.get("/info")).json(), await scrape(one)
    (labels,) = [dict(labels) for name, labels in samples if name == "maskwright_model_info"]
    assert labels["model"] == info["model"]
    assert labels["sha256"] == info["sha256"][:12]
    assert value(samples, "provider_active", provider="cpu") == 1
    assert value(samples, "provider_active", provider="cuda") == 0
    assert value(samples, "provider_requested", provider="cpu") == 1


async def test_both_formats_of_prometheus_are_spoken(one: httpx.AsyncClient) -> None:
    classic = await one.get("/metrics")
    assert classic.headers["content-type"].startswith("text/plain")
    wanted = {"accept": "application/openmetrics-text; version=1.0.0"}
    modern = await one.get("/metrics", headers=wanted)
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


def test_what_was_removed_and_comes_back_counts_from_zero() -> None:
    registry = CollectorRegistry()
    texts = Counter("texts", "Texts.", ("task",), registry=registry)
    texts.labels("embed").inc(5)
    texts.remove("embed")
    assert registry.get_sample_value("texts_total", {"task": "embed"}) is None
    texts.labels("embed").inc()
    texts.labels("embed").inc()
    assert registry.get_sample_value("texts_total", {"task": "embed"}) == 2


@pytest.mark.parametrize(
    ("amount", "bucket"), [(0.0, "1.0"), (1.0, "1.0"), (1.1, "2.0"), (9, "+Inf")]
)
def test_an_amount_counts_in_the_first_bucket_that_holds_it(amount: float, bucket: str) -> None:
    registry = CollectorRegistry()
    waits = Histogram("waits", "Waits.", ("graph",), buckets=(1.0, 2.0), registry=registry)
    waits.labels("encode").observe(amount)
    at = {
        bound: registry.get_sample_value("waits_bucket", {"graph": "encode", "le": bound})
        for bound in ("1.0", "2.0", "+Inf")
    }
    assert next(bound for bound, count in at.items() if count) == bucket
    assert registry.get_sample_value("waits_sum", {"graph": "encode"}) == amount


async def test_probes_that_are_refused_do_not_count_as_refused_work(app: FastAPI) -> None:
    async with running(app) as client:
        app.state.lifecycle.drain()
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        samples = await scrape(client)
        assert all(value(samples, "refused_total", reason=reason) == 0 for reason in REFUSALS)
        assert value(samples, "draining") == 1
        assert value(samples, "ready") == 0


async def test_live_and_ready_are_told_apart(app: FastAPI) -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        assert (await client.get("/livez")).status_code == 200
        starting = await client.get("/readyz")
        assert (starting.status_code, starting.json()["code"]) == (503, "not_ready")
    async with running(app) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready"}
