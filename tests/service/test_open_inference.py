"""The Open Inference Protocol: tensors in JSON, and as bytes behind it."""

import json
import struct
from typing import Any

import httpx
import numpy as np
import pytest

TEXTS = ["To [MASK]e, é", "[MASK]r n[MASK]t"]


def tensor(texts: list[Any], **fields: Any) -> dict[str, Any]:
    return {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts} | fields


async def infer(client: httpx.AsyncClient, model: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor(TEXTS)]} | body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def arrays(answer: dict[str, Any]) -> dict[str, Any]:
    return {t["name"]: np.array(t["data"]).reshape(t["shape"]) for t in answer["outputs"]}


async def test_embed_gives_the_vectors_of_embed(client: httpx.AsyncClient) -> None:
    answer = await infer(client, "embed", id="seven", parameters={"dimensions": 4})
    plain = (await client.post("/embed", json={"inputs": TEXTS, "dimensions": 4})).json()
    assert arrays(answer)["embedding"] == pytest.approx(np.array(plain), abs=1e-6)
    assert (answer["id"], answer["model_name"]) == ("seven", "embed")
    assert answer["outputs"][0]["datatype"] == "FP32"


async def test_fill_mask_gives_a_row_a_mask_and_says_of_which_text(
    client: httpx.AsyncClient,
) -> None:
    answer = arrays(await infer(client, "fill-mask", parameters={"top_k": 3}))
    plain = await client.post("/fill-mask", json={"inputs": TEXTS, "parameters": {"top_k": 3}})
    first, (second, third) = plain.json()
    assert answer["text_index"].tolist() == [0, 1, 1]
    for row, candidates in enumerate((first, second, third)):
        assert answer["token"][row].tolist() == [c["token"] for c in candidates]
        assert answer["token_str"][row].tolist() == [c["token_str"] for c in candidates]
        assert answer["score"][row] == pytest.approx([c["score"] for c in candidates], rel=1e-5)


async def test_only_the_outputs_that_are_wanted_come(client: httpx.AsyncClient) -> None:
    answer = await infer(client, "fill-mask", outputs=[{"name": "token"}])
    assert [output["name"] for output in answer["outputs"]] == ["token"]


def packed(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


async def post_binary(
    client: httpx.AsyncClient, body: dict[str, Any], data: bytes, *, length: int | None = None
) -> httpx.Response:
    text = json.dumps(body).encode()
    headers = {"inference-header-content-length": str(len(text) if length is None else length)}
    return await client.post("/v2/models/embed/infer", content=text + data, headers=headers)


async def test_texts_and_vectors_go_as_bytes_behind_the_json(client: httpx.AsyncClient) -> None:
    data = packed([text.encode() for text in TEXTS])
    given = tensor(TEXTS, parameters={"binary_data_size": len(data)})
    del given["data"]
    body = {"inputs": [given], "parameters": {"binary_data_output": True}}
    answer = await post_binary(client, body, data)
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.content[:length])["outputs"]
    raw = answer.content[length:]
    assert output["parameters"] == {"binary_data_size": len(raw)}
    vectors = np.frombuffer(raw, "<f4").reshape(output["shape"])
    plain = (await client.post("/embed", json={"inputs": TEXTS})).json()
    assert vectors == pytest.approx(np.array(plain), abs=1e-6)


@pytest.mark.parametrize(
    ("size", "data", "message"),
    [
        (9, b"\x01\x00\x00\x00", "not a number of the 4 bytes that are left"),
        (-1, b"", "not a number of the 0 bytes that are left"),
        (True, b"a", "not a number of the 1 bytes that are left"),
        (3, b"\x01\x00\x00", "end within a length"),
        (5, b"\x02\x00\x00\x00a", "end within a text"),
        (5, b"\x01\x00\x00\x00\xff", "not UTF-8"),
        (5, b"\x01\x00\x00\x00ab", "1 bytes follow"),
        (0, b"", "shape does not fit"),
    ],
)
async def test_bytes_that_are_no_texts_are_refused(
    client: httpx.AsyncClient, size: Any, data: bytes, message: str
) -> None:
    given = tensor(["a"], parameters={"binary_data_size": size})
    del given["data"]
    answer = await post_binary(client, {"inputs": [given]}, data)
    assert answer.status_code == 422
    assert message in answer.json()["error"]


@pytest.mark.parametrize("length", [10_000, 3])
async def test_a_header_that_does_not_fit_the_body_is_refused(
    client: httpx.AsyncClient, length: int
) -> None:
    answer = await post_binary(client, {"inputs": [tensor(["a"])]}, b"", length=length)
    assert answer.status_code == (422 if length > 100 else 400)
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("bert/infer", {}, 404, "there is: fill-mask, embed."),
        ("embed/versions/2/infer", {}, 404, "there is: tiny-char-"),
        ("embed/infer", {"inputs": []}, 422, "inputs"),
        ("embed/infer", {"inputs": [tensor(["a"], name="ids")]}, 422, "inputs[0].name"),
        ("embed/infer", {"inputs": [tensor(["a"], datatype="FP32")]}, 422, "inputs[0].datatype"),
        ("embed/infer", {"inputs": [tensor(["a"], shape=[2])]}, 422, "shape does not fit its 1"),
        ("embed/infer", {"inputs": [tensor([5])]}, 422, "BYTES are written as strings"),
        ("embed/infer", {"inputs": [tensor([])]}, 422, "at least one text"),
        ("embed/infer", {"inputs": [tensor(["a", ""])]}, 400, "text[1]: The text is empty."),
        ("embed/infer", {"parameters": {"top_k": 2}}, 422, "there are: normalize"),
        ("embed/infer", {"outputs": [{"name": "logits"}]}, 422, "there are: embedding."),
        ("fill-mask/infer", {"inputs": [tensor(["a"])]}, 400, "text[0]: The text has no [MASK]"),
        ("fill-mask/infer", {"parameters": {"top_k": 0}}, 422, "parameters.top_k"),
    ],
)
async def test_what_cannot_be_answered_is_refused_in_the_protocols_form(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    answer = await client.post(f"/v2/models/{path}", json={"inputs": [tensor(TEXTS)]} | body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert message in answer.json()["error"]


async def test_nested_data_is_read_in_row_major_order(client: httpx.AsyncClient) -> None:
    nested = tensor([["a"], ["b"]], shape=[2, 1])
    answer = arrays(await infer(client, "embed", inputs=[nested]))["embedding"]
    flat = arrays(await infer(client, "embed", inputs=[tensor(["a", "b"])]))["embedding"]
    assert np.array_equal(answer, flat)


async def test_server_and_models_describe_themselves(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v2")).json()["extensions"] == ["binary_tensor_data"]
    assert (await client.get("/v2/health/live")).json() == {"live": True}
    assert (await client.get("/v2/health/ready")).json() == {"ready": True}
    for model in ("fill-mask", "embed"):
        found = (await client.get(f"/v2/models/{model}")).json()
        (version,) = found["versions"]
        assert found["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
        same = await client.get(f"/v2/models/{model}/versions/{version}")
        assert same.json() == found
        ready = await client.get(f"/v2/models/{model}/versions/{version}/ready")
        assert ready.json() == {"name": model, "ready": True}
        answer = await infer(client, model)
        described = {o["name"]: (o["datatype"], len(o["shape"])) for o in found["outputs"]}
        given = {o["name"]: (o["datatype"], len(o["shape"])) for o in answer["outputs"]}
        assert described == given
    for path in ("/v2/models/bert", "/v2/models/embed/versions/9/ready", "/v2/nothing"):
        answer = await client.get(path)
        assert (answer.status_code, set(answer.json())) == (404, {"error"})
