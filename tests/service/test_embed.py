"""POST /embed."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from export.artefact import Artefact
from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

PROMPTS = {"query": "query: "}
TEXTS = ["To be, or not to be", "a", "x" * 30]


async def embed(client: httpx.AsyncClient, inputs: Any, **fields: Any) -> NDArray[np.float64]:
    answer = await client.post("/embed", json={"inputs": inputs, **fields})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json())


async def test_the_answer_is_always_a_list_of_vectors(client: httpx.AsyncClient) -> None:
    assert (await embed(client, "a")).shape == (1, 32)
    assert (await embed(client, TEXTS)).shape == (3, 32)


async def test_vectors_have_length_one_unless_the_raw_ones_are_wanted(
    client: httpx.AsyncClient,
) -> None:
    unit, raw = await embed(client, TEXTS), await embed(client, TEXTS, normalize=False)
    assert np.linalg.norm(unit, axis=1) == pytest.approx(1, abs=1e-6)
    assert unit == pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True), abs=1e-6)


async def test_dimensions_keep_the_leading_features(client: httpx.AsyncClient) -> None:
    raw = await embed(client, TEXTS, normalize=False)
    assert np.array_equal(await embed(client, TEXTS, normalize=False, dimensions=5), raw[:, :5])
    assert np.linalg.norm(await embed(client, "a", dimensions=5)) == pytest.approx(1, abs=1e-6)


async def test_every_pooling_of_the_manifest_is_offered(client: httpx.AsyncClient) -> None:
    names = (await client.get("/info")).json()["poolings"]
    vectors = [await embed(client, "To be", pooling=name) for name in names]
    assert names == ["mean", "first", "max"]
    assert len({vector.tobytes() for vector in vectors}) == 3


async def test_a_long_text_is_cut_on_the_side_that_is_named(client: httpx.AsyncClient) -> None:
    text = "".join(map(chr, range(65, 90))) + "".join(map(chr, range(97, 122)))
    answer = await client.post("/embed", json={"inputs": ["a", text]})
    assert answer.headers["x-truncated-inputs"] == "1"
    right = await embed(client, text, truncation_direction="Right")
    assert right == pytest.approx(await embed(client, text[:32]), abs=1e-6)
    left = await embed(client, text, truncation_direction="left")
    assert left == pytest.approx(await embed(client, text[-32:]), abs=1e-6)


async def test_token_ids_are_read_as_they_are(client: httpx.AsyncClient) -> None:
    ids = (await client.post("/tokenize", json={"inputs": TEXTS})).json()
    ids = [[token["id"] for token in tokens] for tokens in ids]
    assert await embed(client, ids) == pytest.approx(await embed(client, TEXTS), abs=1e-6)
    assert np.array_equal(await embed(client, ids[0]), await embed(client, TEXTS[0]))


@pytest.mark.slow
async def test_token_ids_are_read_with_or_without_their_prefix_and_suffix(
    model_of: Callable[..., Model],
) -> None:
    model = model_of("mhsa", tokenizer="bpe")
    async with running(create_app(Settings(), Registry([model]), n_workers=1)) as client:
        ids = model.tokenizer.encode("The king").ids
        for given in (ids, model.tokenizer.wrap(ids)):
            assert np.array_equal(await embed(client, given), await embed(client, "The king"))


async def test_base64_holds_the_numbers_of_the_floats_bit_for_bit(
    client: httpx.AsyncClient,
) -> None:
    floats = await embed(client, TEXTS)
    answer = await client.post("/embed", json={"inputs": TEXTS, "encoding_format": "base64"})
    packed = [np.frombuffer(base64.b64decode(text), "<f4") for text in answer.json()]
    assert np.array_equal(np.array(packed), floats.astype(np.float32))


async def test_safetensors_hold_the_numbers_of_the_floats_and_what_was_read(
    client: httpx.AsyncClient,
) -> None:
    texts = [*TEXTS, "x" * 40]
    accept = {"accept": "application/x-safetensors"}
    answer = await client.post("/embed", json={"inputs": texts}, headers=accept)
    assert answer.headers["content-type"] == "application/x-safetensors"
    assert answer.headers["x-truncated-inputs"] == "3"
    loaded = safetensors.numpy.load(answer.content)
    assert np.array_equal(loaded["embeddings"], (await embed(client, texts)).astype(np.float32))
    details = json.loads(_metadata(answer.content)["details"])
    assert [text["truncated"] for text in details["results"]] == [False] * 3 + [True]


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata


async def test_details_say_what_was_read_of_each_text(client: httpx.AsyncClient) -> None:
    body = {"inputs": ["abc", "x" * 40], "details": True}
    answer = (await client.post("/embed", json=body)).json()
    short, long = answer["results"]
    assert (short["n_tokens"], short["kept"], short["truncated"]) == (3, [0, 3], False)
    assert (long["n_tokens"], long["kept"], long["truncated"]) == (40, [0, 32], True)
    assert np.linalg.norm(long["embedding"]) == pytest.approx(1, abs=1e-6)
    assert answer["timings"]["total_seconds"] > 0


async def test_the_headers_say_where_the_time_went(client: httpx.AsyncClient) -> None:
    answer = await client.post("/embed", json={"inputs": ["abc", "x" * 40]})
    assert answer.headers["x-compute-type"] == "cpu"
    assert answer.headers["x-compute-characters"] == "43"
    assert answer.headers["x-compute-tokens"] == "35"
    for name in ("compute", "total", "tokenization", "queue", "inference"):
        assert int(answer.headers[f"x-{name}-time"]) >= 0


async def test_with_partial_the_good_texts_are_embedded(client: httpx.AsyncClient) -> None:
    body = {"inputs": ["a", "", "b"], "partial": True}
    answer = await client.post("/embed", json=body)
    first, second, third = answer.json()["results"]
    assert (second["code"], second["index"]) == ("empty_text", 1)
    assert [first["embedding"], third["embedding"]] == (await embed(client, ["a", "b"])).tolist()
    accept = {"accept": "application/x-safetensors"}
    binary = (await client.post("/embed", json=body, headers=accept)).content
    assert safetensors.numpy.load(binary)["embeddings"].shape == (2, 32)


async def test_a_named_prompt_stands_before_each_text(model_of: Callable[..., Model]) -> None:
    model = model_of()
    prompted = Model(
        Artefact(dict(model.artefact.manifest) | {"prompts": PROMPTS}, model.artefact.files),
        model.engine.provider,
    )
    async with running(create_app(Settings(), Registry([prompted]), n_workers=1)) as client:
        assert (await client.get("/info")).json()["prompts"] == ["query"]
        expected = await embed(client, ["query: a", "query: b"])
        for inputs, wanted in ((["a", "b"], expected), ("a", expected[:1])):
            found = await embed(client, inputs, prompt_name="query")
            assert found == pytest.approx(wanted, abs=1e-6)
        refused = await client.post("/embed", json={"inputs": [5], "prompt_name": "query"})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_field")


async def test_similarity_is_the_cosine_of_the_embeddings(client: httpx.AsyncClient) -> None:
    inputs = {"source_sentence": "To be", "sentences": ["To be", "x" * 40, "a"]}
    answer = await client.post("/similarity", json={"inputs": inputs})
    vectors = await embed(client, ["To be", "To be", "x" * 40, "a"])
    assert answer.json() == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-5)
    assert answer.json()[0] == pytest.approx(1, abs=1e-5)


async def test_similarity_names_the_sentence_that_cannot_be_compared(
    client: httpx.AsyncClient,
) -> None:
    inputs = {"source_sentence": "a", "sentences": ["a", ""]}
    answer = await client.post("/similarity", json={"inputs": inputs})
    assert (answer.json()["code"], answer.json()["index"]) == ("empty_text", 1)
    inputs = {"source_sentence": "", "sentences": ["a"]}
    answer = await client.post("/similarity", json={"inputs": inputs})
    assert (answer.json()["code"], "index" in answer.json()) == ("empty_text", False)


async def test_an_answer_that_would_be_too_large_is_refused(model_of: Callable[..., Model]) -> None:
    app = create_app(Settings(max_answer_bytes=32 * 5 * 6), Registry([model_of()]), n_workers=1)
    async with running(app) as client:
        answer = await client.post("/embed", json={"inputs": ["a"] * 3})
        assert (answer.status_code, answer.json()["code"]) == (413, "answer_too_large")
        packed = {"inputs": ["a"] * 3, "encoding_format": "base64"}
        assert (await client.post("/embed", json=packed)).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"inputs": [66]}, 422, "invalid_field"),
        ({"inputs": [[5], [-1]]}, 422, "invalid_field"),
        ({"inputs": [[5], []]}, 400, "empty_text"),
        ({"inputs": [[5], 5]}, 422, "invalid_field"),
        ({"inputs": [5, "a"]}, 422, "invalid_field"),
        ({"inputs": [True]}, 422, "invalid_field"),
        ({"inputs": [5.0]}, 422, "invalid_field"),
        ({"inputs": []}, 422, "invalid_field"),
        ({"inputs": ["a", 5]}, 422, "invalid_field"),
        ({"inputs": {"text": "a"}}, 422, "invalid_field"),
        ({}, 422, "invalid_field"),
        ({"inputs": ["a", ""]}, 400, "empty_text"),
        ({"inputs": "a", "pooling": "median"}, 404, "not_offered"),
        ({"inputs": "a", "prompt_name": "query"}, 404, "not_offered"),
        ({"inputs": "a", "dimensions": 33}, 422, "invalid_field"),
        ({"inputs": "a", "dimensions": 0}, 422, "invalid_field"),
        ({"inputs": "a", "truncation_direction": "up"}, 422, "invalid_field"),
        ({"inputs": "x" * 40, "truncate": False}, 413, "text_too_long"),
        ({"inputs": ["a"] * 1025}, 413, "too_many_texts"),
    ],
)
async def test_what_cannot_be_answered_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await client.post("/embed", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_token_id_beyond_the_vocabulary_is_named_with_its_place_and_the_limit(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/embed", json={"inputs": [[5], [5, 6, 66]]})
    assert (answer.status_code, answer.json()["index"]) == (422, 1)
    assert "token id at [2] is 66; this vocabulary has 0 to 65" in answer.json()["error"]
    assert (await client.get("/livez")).status_code == 200


async def test_the_vectors_are_those_of_the_torch_model(
    client: httpx.AsyncClient, artefact: Path, char_tokenizer: Any
) -> None:
    import torch

    from tests.conftest import random_encoder

    info = (await client.get("/info")).json()
    encoder = random_encoder(info["mixer"], vocab_size=char_tokenizer.vocab_size)
    ids = torch.tensor([char_tokenizer.encode(TEXTS[0]).ids])
    with torch.no_grad():
        hidden = encoder(ids, torch.tensor([ids.shape[1]]))
    expected = hidden.mean(dim=1).numpy()
    assert await embed(client, TEXTS[0], normalize=False) == pytest.approx(expected, abs=1e-5)
