"""POST /compare."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

TEXT = "é [MASK]o be [MASK]r"


@pytest_asyncio.fixture
async def two(model_of: Callable[..., Model]) -> AsyncIterator[httpx.AsyncClient]:
    """A service of both mixers."""
    registry = Registry([model_of("mhsa"), model_of("mlp_mixer")])
    async with running(create_app(Settings(), registry, n_workers=1)) as client:
        yield client


async def compare(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post("/compare", json={"inputs": TEXT} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def every(client: httpx.AsyncClient, model: str) -> Any:
    """Of each mask the probability of each token, by its id."""
    body = {"inputs": TEXT, "parameters": {"top_k": 66}, "model": model}
    masks = (await client.post("/fill-mask", json=body)).json()
    return np.array([[c["score"] for c in sorted(m, key=lambda c: c["token"])] for m in masks])


async def test_the_figures_are_those_of_both_models_own_answers(two: httpx.AsyncClient) -> None:
    answer = await compare(two)
    first, second = [await every(two, name) for name in answer["models"]]
    assert answer["models"] == ["tiny-char-mhsa", "tiny-char-mlp-mixer"]
    for mask, p, q in zip(answer["masks"], first, second, strict=True):
        assert mask["kl"][0] == pytest.approx(np.sum(p * np.log(p / q)), rel=1e-3)
        assert mask["kl"][1] == pytest.approx(np.sum(q * np.log(q / p)), rel=1e-3)
        cosine = p @ q / np.linalg.norm(p) / np.linalg.norm(q)
        assert mask["cosine"] == pytest.approx(cosine, rel=1e-4)
        assert mask["agree"] == (p.argmax() == q.argmax())
        tops = [candidates[0]["token"] for candidates in mask["candidates"]]
        assert tops == [p.argmax(), q.argmax()]
    for way in (0, 1):
        assert answer["kl"][way] == pytest.approx(np.mean([m["kl"][way] for m in answer["masks"]]))
    assert answer["agreement"] == np.mean([mask["agree"] for mask in answer["masks"]])
    assert [mask["span"] for mask in answer["masks"]] == [[2, 8], [13, 19]]
    assert all(times["run_seconds"] > 0 for times in answer["latency"])


async def test_a_model_agrees_with_itself_and_the_order_is_the_requests(
    two: httpx.AsyncClient,
) -> None:
    same = await compare(two, models=["tiny-char-mhsa"] * 2)
    assert (same["agreement"], same["cosine"]) == (1, pytest.approx(1))
    assert same["kl"] == pytest.approx([0, 0], abs=1e-6)
    there = await compare(two)
    back = await compare(two, models=there["models"][::-1])
    assert back["kl"] == pytest.approx(there["kl"][::-1])


async def test_each_model_counts_the_text(two: httpx.AsyncClient) -> None:
    await compare(two)
    text = (await two.get("/metrics")).text
    for model in ("tiny-char-mhsa", "tiny-char-mlp-mixer"):
        assert f'maskwright_texts_total{{model="{model}",task="compare"}} 1.0' in text


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"inputs": "no mask"}, 400, "no_mask"),
        ({"inputs": ""}, 400, "empty_text"),
        ({"models": ["tiny-char-mhsa", "other"]}, 404, "unknown_model"),
        ({"models": ["tiny-char-mhsa"]}, 422, "invalid_field"),
        ({"inputs": ["a [MASK]"]}, 422, "invalid_field"),
        ({"inputs": "[MASK]" + "x" * 40 + "[MASK]"}, 413, "text_too_long"),
    ],
)
async def test_what_cannot_be_compared_is_refused(
    two: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await two.post("/compare", json={"inputs": TEXT} | body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_one_model_alone_cannot_be_compared(model_of: Callable[..., Model]) -> None:
    app = create_app(Settings(), Registry([model_of()]), n_workers=1)
    async with running(app) as client:
        answer = await client.post("/compare", json={"inputs": TEXT})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_offered")


@pytest.mark.slow
async def test_models_with_different_tokenizers_are_not_compared(
    model_of: Callable[..., Model],
) -> None:
    registry = Registry([model_of("mhsa"), model_of("mhsa", tokenizer="bpe")])
    async with running(create_app(Settings(), registry, n_workers=1)) as client:
        answer = await client.post("/compare", json={"inputs": TEXT})
        assert (answer.status_code, answer.json()["code"]) == (422, "tokenizers_differ")
