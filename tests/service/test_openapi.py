"""The OpenAPI document agrees with the code."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.schema import generated
from tests.service.conftest import Server, running


@pytest_asyncio.fixture
async def one(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with running(app) as client:
        yield client


async def test_every_endpoint_is_documented_with_its_failures(one: httpx.AsyncClient) -> None:
    paths = (await one.get("/openapi.json")).json()["paths"]
    assert set(paths) == {
        "/fill-mask", "/score", "/embed", "/embed_all", "/similarity", "/attention", "/compare",
        "/tokenize", "/decode", "/v1/embeddings", "/v1/models", "/v1/models/{name}", "/v2",
        "/v2/health/live", "/v2/health/ready", "/v2/models/{name}", "/v2/models/{name}/ready",
        "/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}",
        "/v2/models/{name}/versions/{version}/ready",
        "/v2/models/{name}/versions/{version}/infer",
        "/info", "/health", "/livez", "/readyz", "/metrics",
    }  # fmt: skip
    for path in ("/fill-mask", "/score", "/embed", "/attention"):
        answers = paths[path]["post"]["responses"]
        assert {"200", "400", "404", "413", "415", "422", "424", "429", "500", "503"} <= set(
            answers
        )


@pytest.mark.slow
def test_generated_requests_meet_only_documented_answers(
    bundled_server: Server, tmp_path: Path
) -> None:
    ended = generated(bundled_server.url, n_examples=10, directory=tmp_path)
    assert ended.returncode == 0, ended.stdout


async def test_the_documentation_can_be_switched_off(model_of: Callable[..., Model]) -> None:
    app = create_app(Settings(docs=False), Registry([model_of()]), n_workers=1)
    async with running(app) as client:
        assert (await client.get("/docs")).status_code == 404
        assert (await client.get("/openapi.json")).status_code == 404


async def test_the_documentation_page_is_served(one: httpx.AsyncClient) -> None:
    assert "swagger" in (await one.get("/docs")).text.lower()
