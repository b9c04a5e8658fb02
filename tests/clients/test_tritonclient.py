"""The Open Inference Protocol as Triton's HTTP client speaks it."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton

TEXTS = ["That is the ques[MASK]ion", "t[MASK] b[MASK] é漢"]


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[triton.InferenceServerClient]:
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    yield client
    client.close()


def given(texts: list[str], *, binary: bool) -> list[triton.InferInput]:
    tensor = triton.InferInput("text", [len(texts)], "BYTES")
    # Object arrays hold bytes for the binary form and strings for JSON.
    values: list[Any] = [text.encode() for text in texts] if binary else list(texts)
    tensor.set_data_from_numpy(np.array(values, np.object_), binary_data=binary)
    return [tensor]


def test_the_server_and_both_models_are_live_ready_and_described(
    client: triton.InferenceServerClient,
) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    for name in ("fill-mask", "embed"):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "shakespeare-mlp-mixer")
        described = client.get_model_metadata(name)
        assert described["versions"] == ["shakespeare-mhsa", "shakespeare-mlp-mixer"]
        assert described["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert not client.is_model_ready("encode")  # the graph inside is not exposed


@pytest.mark.parametrize("binary", [True, False])
def test_embed_takes_texts_and_gives_vectors(
    client: triton.InferenceServerClient, url: str, binary: bool
) -> None:
    outputs = [triton.InferRequestedOutput("embedding", binary_data=binary)]
    answer = client.infer("embed", given(TEXTS, binary=binary), outputs=outputs, request_id="7")
    plain = httpx.post(f"{url}/embed", json={"inputs": TEXTS}).json()
    assert answer.as_numpy("embedding") == pytest.approx(np.array(plain), abs=1e-6)
    assert answer.get_response()["id"] == "7"


@pytest.mark.parametrize("binary", [True, False])
def test_fill_mask_takes_texts_and_gives_the_candidates_of_each_mask(
    client: triton.InferenceServerClient, url: str, binary: bool
) -> None:
    names = ("token_str", "token", "score", "text_index")
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in names]
    model = "shakespeare-mlp-mixer"
    answer = client.infer(
        "fill-mask",
        given(TEXTS, binary=binary),
        model_version=model,
        outputs=outputs,
        parameters={"top_k": 2},
    )
    body = {"inputs": TEXTS, "parameters": {"top_k": 2}, "model": model}
    one, (two, three) = httpx.post(f"{url}/fill-mask", json=body).json()
    assert answer.as_numpy("text_index").tolist() == [0, 1, 1]
    for row, candidates in enumerate((one, two, three)):
        texts = [value.decode() if binary else value for value in answer.as_numpy("token_str")[row]]
        assert texts == [candidate["token_str"] for candidate in candidates]
        assert answer.as_numpy("token")[row].tolist() == [c["token"] for c in candidates]
        scores = [candidate["score"] for candidate in candidates]
        assert answer.as_numpy("score")[row] == pytest.approx(scores, rel=1e-5)


def test_a_refusal_is_read_as_the_clients_own(client: triton.InferenceServerClient) -> None:
    with pytest.raises(triton.InferenceServerException, match=r"text\[1\]: The text has no") as no:
        client.infer("fill-mask", given([TEXTS[0], "none"], binary=True))
    assert no.value.status() == "400"
    with pytest.raises(triton.InferenceServerException, match="fill-mask, embed"):
        client.infer("encode", given(TEXTS, binary=True))
