"""Every metric the service exposes: one class, built in app.py and passed down.

All label values are known in advance and present at zero from the start, so that no rate or ratio
on a dashboard is ever empty.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from service.exposition import Exposition
from service.quick_metrics import Counter, Histogram

# Each bucket is a series for each route, graph and model, so they are few: even steps of about 2.5
# from 0.25 ms, where the texts of a few tokens are, to 16 s. The rules of deploy/prometheus promise
# 1 s, and call an event loop late from 0.1 s on: both are edges, so neither is interpolated.
SECONDS = (0.00025, 0.0006, 0.0015, 0.004, 0.01, 0.025, 0.06, 0.15, 0.4, 1.0, 2.5, 6.0, 16.0)
LAG_SECONDS = (0.001, 0.004, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ITEMS = tuple(float(2**n) for n in range(10))
COSTS = tuple(float(2**n) for n in range(4, 16))

TASKS = ("fill-mask", "score", "embed", "attention", "compare")
GRAPHS = ("encode", "attention")
STATUS_CLASSES = ("2xx", "4xx", "5xx")
REFUSALS = (
    "overloaded", "deadline_exceeded", "rate_limited", "unauthorized", "draining", "too_large",
    "invalid",
)  # fmt: skip
FAILURES = ("backend_error", "non_finite", "out_of_memory", "deadline_exceeded")
STAGES = ("queued", "running")
# Routes that are counted as another, which asks the same or says as much to who reads the figures.
SAME_ROUTES = {
    "/v2/models/{name}/versions/{version}/infer": "/v2/models/{name}/infer",
    "/v2/models/{name}": "/v2",
    "/v2/models/{name}/versions/{version}": "/v2",
    "/v1/models/{name}": "/v1/models",
    "/v2/health/live": "/livez",
    "/v2/health/ready": "/readyz",
    "/health": "/readyz",
    "/v2/models/{name}/ready": "/readyz",
    "/v2/models/{name}/versions/{version}/ready": "/readyz",
}


def counted_as(route: str) -> str:
    """The value of the label `route` for the template of a route."""
    return SAME_ROUTES.get(route, route)


@dataclass(frozen=True)
class ModelFacts:
    """What the metrics say of the model that answers."""

    name: str
    mixer: str
    sha256: str
    precision: str
    provider: str
    provider_requested: str
    runtime_version: str


class Metrics:
    """The service's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.exposition = Exposition(registry)
        self._known: dict[str, tuple[str, ...]] = {}  # labels of model_info by the model's name
        disable_created_metrics()  # a time stamp beside each counter, which no dashboard reads
        self._process_metrics()
        self._http_metrics()
        self._work_metrics()
        self._state_metrics()

    def _process_metrics(self) -> None:
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def _http_metrics(self) -> None:
        self.http_requests = self._counter(
            "http_requests", "Answers sent, by route template.", ("route", "method", "status_class")
        )
        self.http_seconds = self._histogram(
            "http_request_duration_seconds",
            "From the request's head to the answer's end, inference routes only.",
            SECONDS,
            ("route",),
        )
        self.http_in_flight = self._gauge("http_requests_in_flight", "Requests being answered.")
        self.http_connections = self._gauge("http_connections", "Connections that are open.")
        self.refused = self._counter("refused", "Requests turned away.", ("reason",))
        self._zero(self.refused, ((reason,) for reason in REFUSALS))

    def _work_metrics(self) -> None:
        self.texts = self._counter("texts", "Texts answered.", ("task", "model"))
        self.tokens = self._counter(
            "tokens", "Tokens computed, text or padding.", ("kind", "model")
        )
        self.cancelled = self._counter(
            "cancelled", "Texts that nobody waits for any more: where they were.", ("stage",)
        )
        self.failures = self._counter(
            "failures", "Texts that failed after admission.", ("reason", "model")
        )
        self.retries = self._counter(
            "batch_retries", "Batches that failed and were run again text by text.", ()
        )
        self.truncated = self._counter(
            "truncated", "Texts that were cut to fit.", ("task", "model")
        )
        self.workers_lost = self._counter(
            "workers_lost", "Workers that died or did not come back from a batch.", ()
        )
        self.batch_items = self._histogram("batch_items", "Texts in a batch.", ITEMS)
        self.batch_cost = self._histogram("batch_cost", "Cost of a batch, in padded tokens.", COSTS)
        self.tokenize_seconds = self._histogram(
            "tokenize_seconds", "Seconds: text to ids, a request.", SECONDS
        )
        self.queue_seconds = self._histogram(
            "queue_seconds", "Seconds: admission to batch, a text.", SECONDS, ("graph", "model")
        )
        self.run_seconds = self._histogram(
            "run_seconds", "Seconds: the graph's run, a batch.", SECONDS, ("graph", "model")
        )
        self.total_seconds = self._histogram(
            "total_seconds", "Seconds: a request that was answered, in all.", SECONDS
        )
        self._zero(self.cancelled, ((stage,) for stage in STAGES))

    def _state_metrics(self) -> None:
        self.queue_depth = self._gauge("queue_depth", "Texts that wait for a batch.")
        self.queue_cost = self._gauge("queue_cost", "Their cost, in padded tokens.")
        self.queue_capacity = self._gauge("queue_capacity_cost", "The cost that may wait at most.")
        self.reloads = self._counter("reloads", "Models and keys read anew.", ("outcome",))
        self._zero(self.reloads, (("done",), ("failed",)))
        self.loop_lag_seconds = self._histogram(
            "event_loop_lag_seconds", "How late the event loop ran what was due.", LAG_SECONDS
        )
        self.ready = self._gauge("ready", "1 while the service takes work.")
        self.draining = self._gauge("draining", "1 from SIGTERM on.")
        self.model_info = self._gauge(
            "model_info",
            "1 for each model that answers.",
            ("model", "mixer", "sha256", "precision", "runtime_version"),
        )
        self.provider_active = self._gauge(
            "provider_active", "1 for the execution provider that runs.", ("provider",)
        )
        self.provider_requested = self._gauge(
            "provider_requested", "1 for the execution provider that was asked for.", ("provider",)
        )

    def know_routes(self, routes: Iterable[tuple[str, str]], *, inference: Iterable[str]) -> None:
        """Put every (route, method) at zero, and the latency of the inference routes."""
        for route, method in (*routes, ("other", "other")):
            for status_class in STATUS_CLASSES:
                self.http_requests.labels(counted_as(route), method, status_class)
        for route in inference:
            self.http_seconds.labels(counted_as(route))

    def know_model(self, facts: ModelFacts) -> None:
        """Say that a model answers, where it runs and where it was meant to; its series at zero.

        It replaces one of the same name.
        """
        labels = (
            facts.name, facts.mixer, facts.sha256[:12], facts.precision, facts.runtime_version
        )  # fmt: skip
        if known := self._known.get(facts.name):
            self.model_info.remove(*known)
        self._known[facts.name] = labels
        self.model_info.labels(*labels).set(1)
        for task in TASKS:
            self.texts.labels(task, facts.name)
            self.truncated.labels(task, facts.name)
        for kind in ("real", "padding"):
            self.tokens.labels(kind, facts.name)
        for reason in FAILURES:
            self.failures.labels(reason, facts.name)
        for graph in GRAPHS:
            self.queue_seconds.labels(graph, facts.name)
            self.run_seconds.labels(graph, facts.name)
        for provider in ("cpu", "cuda", "openvino"):
            self.provider_active.labels(provider).set(provider == facts.provider)
            self.provider_requested.labels(provider).set(provider == facts.provider_requested)

    def watch_queue(
        self, *, depth: Callable[[], float], cost: Callable[[], float], capacity: float
    ) -> None:
        """Read the queue when scraped, so that the figures are never stale."""
        self.queue_depth.set_function(depth)
        self.queue_cost.set_function(cost)
        self.queue_capacity.set(capacity)

    def _counter(self, name: str, about: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"maskwright_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"maskwright_{name}", about, labels, registry=self.registry)

    def _histogram(
        self, name: str, about: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()
    ) -> Histogram:
        return Histogram(
            f"maskwright_{name}", about, labels, buckets=buckets, registry=self.registry
        )

    @staticmethod
    def _zero(metric: Counter, label_values: Iterable[tuple[str, ...]]) -> None:
        for values in label_values:
            metric.labels(*values)
