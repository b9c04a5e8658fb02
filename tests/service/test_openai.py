"""POST /v1/embeddings and GET /v1/models: OpenAI's shapes, and its form of every failure."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

TEXTS = ["To be, or not to be", "a"]


async def model_name(client: httpx.AsyncClient) -> str:
    return str((await client.get("/info")).json()["model"])


async def embeddings(client: httpx.AsyncClient, **body: Any) -> Any:
    body = {"model": await model_name(client), "input": TEXTS} | body
    answer = await client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_vectors_are_those_of_embed_and_the_tokens_are_counted(
    client: httpx.AsyncClient,
) -> None:
    answer = await embeddings(client)
    plain = (await client.post("/embed", json={"inputs": TEXTS})).json()
    assert [entry["embedding"] for entry in answer["data"]] == plain
    assert [(entry["object"], entry["index"]) for entry in answer["data"]] == [
        ("embedding", 0),
        ("embedding", 1),
    ]
    assert (answer["object"], answer["model"]) == ("list", await model_name(client))
    assert answer["usage"] == {"prompt_tokens": 20, "total_tokens": 20}


async def test_base64_holds_the_same_numbers(client: httpx.AsyncClient) -> None:
    packed = await embeddings(client, encoding_format="base64")
    plain = await embeddings(client)
    for one, other in zip(packed["data"], plain["data"], strict=True):
        numbers = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        assert np.array_equal(numbers, np.array(other["embedding"], np.float32))


async def test_dimensions_and_token_ids_are_taken(client: httpx.AsyncClient) -> None:
    answer = await embeddings(client, input=[[5, 6], [7]], dimensions=4)
    assert [len(entry["embedding"]) for entry in answer["data"]] == [4, 4]
    assert answer["usage"]["prompt_tokens"] == 3
    one = await embeddings(client, input=[5, 6], dimensions=4)
    assert len(one["data"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "kind", "code", "param"),
    [
        ({"input": ["a", ""]}, 400, "invalid_request_error", "empty_text", "input[1]"),
        ({"input": ""}, 400, "invalid_request_error", "empty_text", None),
        ({"model": "gpt"}, 404, "invalid_request_error", "unknown_model", None),
        ({"dimensions": 33}, 422, "invalid_request_error", "invalid_field", None),
        ({"dimension": 4}, 422, "invalid_request_error", "invalid_field", None),
        ({"input": ["a"] * 1025}, 413, "invalid_request_error", "too_many_texts", None),
    ],
)
async def test_errors_have_the_form_that_its_clients_read(
    client: httpx.AsyncClient,
    body: dict[str, Any],
    status: int,
    kind: str,
    code: str,
    param: str | None,
) -> None:
    body = {"model": await model_name(client), "input": TEXTS} | body
    answer = await client.post("/v1/embeddings", json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == (kind, code, param)
    assert error["message"].endswith(".")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/embeddings", 405, "method_not_allowed"),
        ("GET", "/v1/models/gpt", 404, "unknown_model"),
    ],
)
async def test_the_frameworks_refusals_have_that_form_too(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_malformed_json_has_that_form_too(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/embeddings", content=b"{", headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed_json")


async def test_models_are_listed_and_shown(client: httpx.AsyncClient) -> None:
    name = await model_name(client)
    entry = {"id": name, "object": "model", "created": 0, "owned_by": "maskwright"}
    assert (await client.get("/v1/models")).json() == {"object": "list", "data": [entry]}
    assert (await client.get(f"/v1/models/{name}")).json() == entry
