"""The text that Prometheus scrapes."""

import re

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder

from service.metrics import Metrics
from tests.conftest import model_facts

ACCEPTS = {
    "nothing said": "",
    "a browser": "text/html,application/xhtml+xml,*/*;q=0.8",
    "Prometheus 2.42": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
    "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Prometheus 3": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "classic only": "text/plain;version=0.0.4",
}


def metrics() -> Metrics:
    metrics = Metrics(CollectorRegistry())
    metrics.know_routes([("/embed", "POST")], inference=["/embed"])
    metrics.know_model(model_facts('a"b\\c'))
    metrics.watch_queue(depth=lambda: 3.0, cost=lambda: 0.1, capacity=1e7)
    metrics.http_seconds.labels("/embed").observe(0.0031)
    Counter("odd", 'A "quoted" word,\na second line and a \\.', registry=metrics.registry).inc()
    return metrics


def without_what_moves(text: bytes) -> str:
    """The text but for the values of the process itself, which each reading changes."""
    return re.sub(r"^((?:process|python_gc)_\S+) .+$", r"\1", text.decode(), flags=re.MULTILINE)


@pytest.mark.parametrize("accept", ACCEPTS.values(), ids=ACCEPTS)
def test_the_text_is_what_the_library_would_write(accept: str) -> None:
    ours = metrics()
    encode, content_type = choose_encoder(accept)
    for _ in range(2):  # anew, and from what was kept
        text, said = ours.exposition.render(accept)
        assert said == content_type
        assert without_what_moves(text) == without_what_moves(encode(ours.registry))
