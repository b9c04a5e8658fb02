"""Requests as OpenTelemetry spans, sent by OTLP over HTTP; only where an endpoint is set.

A span is written when its request has ended, from the times that are taken for its log line anyway.
Headers, sampling and batching are the library's `OTEL_*` variables.
"""

import time
from importlib.metadata import version
from typing import Any

from starlette.types import Scope

from service.record import Record

PARENT = (b"traceparent", b"tracestate")  # W3C Trace Context


class Tracer:
    """Sends spans to a collector, from a thread of its own.

    Args:
        endpoint: The collector's URL, such as http://127.0.0.1:4318.

    Raises:
        ValueError: OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
            from opentelemetry.trace.propagation.tracecontext import (
                TraceContextTextMapPropagator,
            )
        except ModuleNotFoundError:
            raise ValueError(
                f"otlp_endpoint={endpoint!r} needs OpenTelemetry: pip install 'maskwright[tracing]'"
            ) from None
        resource = Resource.create(
            {"service.name": "maskwright", "service.version": version("maskwright")}
        )
        self._provider = TracerProvider(resource=resource)
        # Short, since the process waits for it at its end.
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=2)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("maskwright")
        self._parent_of = TraceContextTextMapPropagator().extract
        self._kind, self._inside = SpanKind.SERVER, set_span_in_context
        self._failed = Status(StatusCode.ERROR)

    def write(
        self, record: Record, scope: Scope, *, route: str, status: int, seconds: float
    ) -> None:
        """The spans of a request that has just ended: itself, and its phases below it."""
        # One clock for all: the wall's, read once.
        zero = time.time_ns() - int((record.begun + seconds) * 1e9)

        def at(moment: float) -> int:
            return zero + int(moment * 1e9)

        carried = {k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k in PARENT}
        attributes: dict[str, Any] = {
            "http.request.method": scope["method"],
            "http.route": route,
            "http.response.status_code": status,
            "maskwright.request_id": record.request_id,
        }
        if record.code:
            attributes["error.type"] = record.code
        if record.n_texts:
            attributes |= {"maskwright.texts": record.n_texts, "maskwright.tokens": record.n_tokens}
        whole = self._tracer.start_span(
            f"{scope['method']} {route}",
            context=self._parent_of(carried),
            kind=self._kind,
            attributes=attributes,
            start_time=at(record.begun),
        )
        if status >= 500:
            whole.set_status(self._failed)
        inside = self._inside(whole)
        for name, begun, lasted in record.phases:
            phase = self._tracer.start_span(name, context=inside, start_time=at(begun))
            phase.end(at(begun + lasted))
        whole.end(at(record.begun + seconds))

    def close(self) -> None:
        """Send what waits; may take as long as the collector does."""
        self._provider.shutdown()
