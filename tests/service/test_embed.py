"""POST /embed."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

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


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
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
