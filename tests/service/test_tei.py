"""What clients of text-embeddings-inference call beside /embed."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import safetensors.numpy
from fastapi import FastAPI

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

MIXED = "ab漢字 😀 e\u0301 ñ\n[MASK]"


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_every_token_of_a_text_has_its_hidden_state(client: httpx.AsyncClient) -> None:
    texts = ["To be", "x" * 40, "a"]
    hidden = await post(client, "/embed_all", inputs=texts)
    assert [np.shape(rows) for rows in hidden] == [(5, 32), (32, 32), (1, 32)]
    mean = await post(client, "/embed", inputs=texts, normalize=False)
    for rows, vector in zip(hidden, mean, strict=True):
        assert np.mean(rows, axis=0) == pytest.approx(np.array(vector), abs=1e-5)
    assert np.shape(await post(client, "/embed_all", inputs="To be")) == (1, 5, 32)


async def test_hidden_states_come_as_safetensors_too(client: httpx.AsyncClient) -> None:
    accept = {"accept": "application/x-safetensors"}
    answer = await client.post("/embed_all", json={"inputs": ["abc", "a"]}, headers=accept)
    loaded = safetensors.numpy.load(answer.content)
    assert {name: array.shape for name, array in loaded.items()} == {
        "embeddings.0": (3, 32),
        "embeddings.1": (1, 32),
    }


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["char", "bpe", "wordpiece"])
async def test_tokens_and_their_offsets_belong_to_the_text_whatever_its_script(
    model_of: Callable[..., Model], tokenizer: str
) -> None:
    app = create_app(Settings(), Registry([model_of("mhsa", tokenizer=tokenizer)]), n_workers=1)
    async with running(app) as client:
        (tokens,) = await post(client, "/tokenize", inputs=MIXED)
        inner = [token for token in tokens if token["start"] is not None]
        assert all(token["text"] == MIXED[token["start"] : token["stop"]] for token in inner)
        assert {token["id"] for token in tokens if token["start"] is None} == (
            set() if tokenizer == "char" else {3, 4}
        )
        (bare,) = await post(client, "/tokenize", inputs=MIXED, add_special_tokens=False)
        assert bare == inner
        if tokenizer == "bpe":  # which knows every character; a mask takes the space before it
            text = MIXED.removesuffix("\n[MASK]")
            (tokens,) = await post(client, "/tokenize", inputs=text)
            ids = [token["id"] for token in tokens]
            assert await post(client, "/decode", ids=ids) == [text]


async def test_decoding_the_ids_of_a_text_gives_the_text(client: httpx.AsyncClient) -> None:
    texts = ["To be, or not", "a [MASK]\n"]
    tokens = await post(client, "/tokenize", inputs=texts)
    ids = [[token["id"] for token in of_text] for of_text in tokens]
    assert await post(client, "/decode", ids=ids) == texts
    assert await post(client, "/decode", ids=ids[0]) == texts[:1]
    assert await post(client, "/decode", ids=[0, *ids[0]]) == texts[:1]
    kept = await post(client, "/decode", ids=[0, *ids[0]], skip_special_tokens=False)
    assert kept == ["[PAD]" + texts[0]]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/tokenize", {"inputs": ["a", ""]}, 400, "empty_text"),
        ("/tokenize", {"inputs": ["a"] * 1025}, 413, "too_many_texts"),
        ("/tokenize", {"inputs": "x" * 300_000}, 413, "answer_too_large"),
        ("/tokenize", {"inputs": "a", "prompt_name": "query"}, 404, "not_offered"),
        ("/decode", {"ids": [[5], [66]]}, 422, "invalid_field"),
        ("/decode", {"ids": []}, 422, "invalid_field"),
        ("/decode", {"ids": "5"}, 422, "invalid_field"),
        ("/decode", {"ids": [[5]] * 1025}, 413, "too_many_texts"),
        ("/decode", {"ids": [5], "model": "other"}, 404, "unknown_model"),
        ("/embed_all", {"inputs": ["a", ""]}, 400, "empty_text"),
        ("/embed_all", {"inputs": "x" * 40, "truncate": False}, 413, "text_too_long"),
        ("/embed_all", {"inputs": ["x" * 32] * 1024 * 2}, 413, "too_many_texts"),
        ("/rerank", {"query": "a", "texts": ["b"]}, 404, "not_found"),
    ],
)
async def test_what_cannot_be_answered_is_refused(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert set(answer.json()) <= {"error", "error_type", "code", "index"}


async def test_health_has_no_body_and_fails_while_draining(app: FastAPI) -> None:
    async with running(app) as client:
        healthy = await client.get("/health")
        assert (healthy.status_code, healthy.content) == (200, b"")
        app.state.lifecycle.drain()
        answer = await client.get("/health")
        assert (answer.status_code, answer.json()["error_type"]) == (503, "Unhealthy")


async def test_info_has_the_fields_that_its_clients_read(client: httpx.AsyncClient) -> None:
    info = (await client.get("/info")).json()
    assert info["model_id"] == info["served_model_name"] == info["model"]
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (info["model_dtype"], info["max_input_length"]) == ("float32", 32)
    assert info["max_client_batch_size"] == 1024
    assert info["max_batch_tokens"] == 256
    assert info["max_concurrent_requests"] == 65536 // 32
