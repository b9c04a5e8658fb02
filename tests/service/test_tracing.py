"""Spans of requests, as a collector receives them."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(HTTPServer):
    """Keeps the spans that come by OTLP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["content-length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def asked(collector: Collector, model: Model, path: str, body: object, **headers: str) -> int:
    """The status of one request to a service that then ends, and so sends its spans."""
    settings = Settings(otlp_endpoint=f"http://127.0.0.1:{collector.server_port}")
    async with running(create_app(settings, Registry([model]), n_workers=1)) as client:
        answer: httpx.Response = await client.post(path, json=body, headers=headers)
    return answer.status_code


async def test_a_request_is_a_span_of_its_callers_trace_with_its_phases_inside_it(
    collector: Collector, bundled: Model
) -> None:
    parent = f"00-{TRACE}-{PARENT}-01"
    assert await asked(collector, bundled, "/embed", {"inputs": "to be"}, traceparent=parent) == 200
    spans = {span.name: span for span in collector.spans}
    assert sorted(spans) == ["POST /embed", "queue", "run", "tokenize"]
    whole = spans.pop("POST /embed")
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, PARENT)
    assert whole.kind == Span.SPAN_KIND_SERVER
    said = {item.key: item.value for item in whole.attributes}
    assert said["http.route"].string_value == "/embed"
    assert said["http.response.status_code"].int_value == 200
    assert said["maskwright.tokens"].int_value == 5
    for phase in spans.values():
        assert (phase.trace_id, phase.parent_span_id) == (whole.trace_id, whole.span_id)
        assert whole.start_time_unix_nano <= phase.start_time_unix_nano
        assert phase.start_time_unix_nano <= phase.end_time_unix_nano <= whole.end_time_unix_nano
    assert spans["tokenize"].end_time_unix_nano <= spans["run"].start_time_unix_nano


async def test_a_request_of_a_caller_that_does_not_trace_it_sends_no_span(
    collector: Collector, bundled: Model
) -> None:
    await asked(
        collector, bundled, "/embed", {"inputs": "a"}, traceparent=f"00-{TRACE}-{PARENT}-00"
    )
    assert not collector.spans


async def test_a_refused_request_says_why_and_no_span_holds_its_text(
    collector: Collector, bundled: Model
) -> None:
    assert await asked(collector, bundled, "/fill-mask", {"inputs": "secret"}) == 400
    (span,) = [span for span in collector.spans if span.name == "POST /fill-mask"]
    said = {item.key: item.value for item in span.attributes}
    assert said["error.type"].string_value == "no_mask"
    assert b"secret" not in b"".join(span.SerializeToString() for span in collector.spans)


async def test_a_collector_that_is_not_there_costs_no_answer(bundled: Model) -> None:
    gone = Collector()
    gone.server_close()
    assert await asked(gone, bundled, "/embed", {"inputs": "a"}) == 200
