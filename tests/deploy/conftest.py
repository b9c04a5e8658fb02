"""What the service exposes, for tests of what reads it."""

from functools import cache

from prometheus_client import CollectorRegistry

from service.metrics import Metrics
from tests.conftest import model_facts


@cache
def exposed_labels() -> dict[str, set[str]]:
    """The labels of each sample that a service with one route and a model exposes."""
    metrics = Metrics(CollectorRegistry())
    metrics.know_routes([("/embed", "POST")], inference=["/embed"])
    metrics.know_model(model_facts("a"))
    metrics.watch_queue(depth=lambda: 0.0, cost=lambda: 0.0, capacity=1.0)
    labels: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            labels[sample.name] = set(sample.labels)
    return labels
