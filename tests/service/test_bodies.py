"""Whatever is sent as a body is answered with 200 or a failure of the client's, never with 5xx."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

ROUTES = st.sampled_from(["/fill-mask", "/score", "/embed", "/attention", "/compare", "/tokenize"])
FIELDS = st.sampled_from(
    ["inputs", "parameters", "top_k", "targets", "truncate", "layers", "heads", "reduce", "model",
     "pooling", "dimensions", "normalize", "details", "partial", "kind", "models", "text"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
VALUES = st.recursive(
    LEAVES | st.just("to b[MASK]"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)
BODIES = (
    st.binary(max_size=200)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(FIELDS, VALUES, max_size=5).map(lambda value: json.dumps(value).encode())
)


@pytest.fixture(scope="module")
def ask(bundled: Model) -> "Iterator[object]":
    """Sends a body to a route of one service, on an event loop of its own."""
    app = create_app(Settings(max_texts=64), Registry([bundled]), n_workers=1)
    with asyncio.Runner() as runner:
        context = running(app)
        client = runner.run(context.__aenter__())

        def send(route: str, body: bytes) -> httpx.Response:
            headers = {"content-type": "application/json"}
            return runner.run(client.post(route, content=body, headers=headers))

        yield send
        runner.run(context.__aexit__(None, None, None))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(route=ROUTES, body=BODIES)
def test_any_body_is_answered_in_our_form(ask: object, route: str, body: bytes) -> None:
    answer = ask(route, body)
    assert answer.status_code < 500, body
    if answer.status_code >= 400:
        assert set(answer.json()) >= {"error", "error_type", "code"}
