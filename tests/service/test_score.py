"""POST /score."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running


async def score(client: httpx.AsyncClient, inputs: Any, **fields: Any) -> Any:
    answer = await client.post("/score", json={"inputs": inputs, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_tokens_surprisal_is_that_of_fill_mask_in_its_place(
    client: httpx.AsyncClient,
) -> None:
    text = "To bé"
    answer = await score(client, text)
    assert [token["text"] for token in answer["tokens"]] == list(text)
    for n, token in enumerate(answer["tokens"]):
        masked = f"{text[:n]}[MASK]{text[n + 1 :]}"
        body = {"inputs": masked, "parameters": {"top_k": 66}}
        every = (await client.post("/fill-mask", json=body)).json()
        (found,) = [c["score"] for c in every if c["token"] == token["id"]]
        assert token["surprisal"] == pytest.approx(-np.log(found), abs=1e-4)


async def test_the_pseudo_perplexity_is_the_exponential_of_the_mean_surprisal(
    client: httpx.AsyncClient,
) -> None:
    answer = await score(client, "to be or not")
    surprisals = [token["surprisal"] for token in answer["tokens"]]
    assert answer["surprisal"] == pytest.approx(sum(surprisals))
    assert answer["pseudo_perplexity"] == pytest.approx(np.exp(np.mean(surprisals)))
    assert answer["n_passes"] == len(surprisals) == answer["n_tokens"] == 12


async def test_a_list_answers_per_text_as_each_text_alone(client: httpx.AsyncClient) -> None:
    texts = ["To be", "x" * 20, "a"]
    for text, answer in zip(texts, await score(client, texts), strict=True):
        alone = await score(client, text)
        assert answer["surprisal"] == pytest.approx(alone["surprisal"], abs=1e-4)


async def test_a_long_text_is_cut_and_says_so(client: httpx.AsyncClient) -> None:
    answer = await score(client, "x" * 50)
    assert (answer["truncated"], answer["kept"], answer["n_tokens"]) == (True, [0, 32], 50)
    assert answer["n_passes"] == 32


@pytest.mark.slow
async def test_prefix_and_suffix_are_not_scored(model_of: Callable[..., Model]) -> None:
    app = create_app(Settings(), Registry([model_of("mhsa", tokenizer="bpe")]), n_workers=1)
    async with running(app) as client:
        answer = await score(client, "The king")
        assert "".join(token["text"] for token in answer["tokens"]) == "The king"
        assert answer["n_passes"] == answer["n_tokens"] == len(answer["tokens"])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"inputs": ["a", "b[MASK]"]}, 400, "mask_not_allowed"),
        ({"inputs": ["a", ""]}, 400, "empty_text"),
        ({"inputs": "x" * 40, "truncate": False}, 413, "text_too_long"),
        ({"inputs": ["x" * 32] * 129}, 413, "too_much_work"),
    ],
)
async def test_what_cannot_be_scored_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await client.post("/score", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert ("index" in answer.json()) == (status == 400)


async def test_with_partial_the_good_texts_are_scored(client: httpx.AsyncClient) -> None:
    first, second = await score(client, ["a[MASK]", "ab"], partial=True)
    assert (first["code"], first["index"]) == ("mask_not_allowed", 0)
    assert second["n_passes"] == 2
