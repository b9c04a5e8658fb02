"""POST /attention."""

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


async def attention(client: httpx.AsyncClient, inputs: Any, **fields: Any) -> Any:
    answer = await client.post("/attention", json={"inputs": inputs, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_weights_are_by_layer_head_query_and_key(client: httpx.AsyncClient) -> None:
    answer = await attention(client, "To be")
    assert np.shape(answer["weights"]) == (2, 2, 5, 5)
    assert (answer["layers"], answer["heads"]) == ([0, 1], [0, 1])


async def test_kind_says_what_the_weights_are(client: httpx.AsyncClient) -> None:
    mixer = (await client.get("/info")).json()["mixer"]
    answer = await attention(client, "To be")
    weights = np.array(answer["weights"])
    if mixer == "mhsa":
        assert answer["kind"] == "attention"
        assert weights.sum(axis=-1) == pytest.approx(1, abs=1e-5)
        assert weights.min() >= 0
    else:
        assert answer["kind"] == "token_mixing"
        assert weights.min() < 0


async def test_tokens_carry_ids_text_and_offsets_in_code_points(client: httpx.AsyncClient) -> None:
    text = "é😀[MASK]b"
    tokens = (await attention(client, text))["tokens"]
    assert [token["text"] for token in tokens] == ["é", "😀", "[MASK]", "b"]
    assert [(token["start"], token["end"]) for token in tokens] == [(0, 1), (1, 2), (2, 8), (8, 9)]
    assert [token["special"] for token in tokens] == [True, True, True, False]


async def test_a_list_answers_per_text_as_each_text_alone(client: httpx.AsyncClient) -> None:
    texts = ["To be", "x" * 20, "a"]
    together = await attention(client, texts)
    for text, answer in zip(texts, together, strict=True):
        alone = await attention(client, text)
        assert answer["tokens"] == alone["tokens"]
        assert np.array(answer["weights"]) == pytest.approx(np.array(alone["weights"]), abs=1e-5)


async def test_layers_and_heads_are_chosen_negative_ones_from_the_last(
    client: httpx.AsyncClient,
) -> None:
    every = np.array((await attention(client, "To be"))["weights"])
    answer = await attention(client, "To be", layers=[-1], heads=[1, 0])
    assert (answer["layers"], answer["heads"]) == ([1], [1, 0])
    assert np.array_equal(answer["weights"], every[[1]][:, [1, 0]])


async def test_heads_are_averaged_on_request(client: httpx.AsyncClient) -> None:
    every = np.array((await attention(client, "To be"))["weights"])
    mean = np.array((await attention(client, "To be", reduce="mean"))["weights"])
    assert mean == pytest.approx(every.mean(axis=1), abs=1e-6)


async def test_top_k_gives_the_largest_of_each_query_as_pairs(client: httpx.AsyncClient) -> None:
    every = np.array((await attention(client, "To be"))["weights"])
    pairs = np.array((await attention(client, "To be", top_k=2))["weights"])
    assert pairs.shape == (2, 2, 5, 2, 2)
    keys = pairs[..., 0].astype(int)
    assert np.allclose(np.take_along_axis(every, keys, axis=-1), pairs[..., 1], atol=1e-7)
    assert np.allclose(np.abs(pairs[..., 0, 1]), np.abs(every).max(axis=-1), atol=1e-7)


@pytest.mark.parametrize(
    "body",
    [{"layers": [2]}, {"heads": [-3]}, {"layers": []}, {"reduce": "rollout"}, {"top_k": 0}],
)
async def test_a_choice_the_model_does_not_have_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    answer = await client.post("/attention", json={"inputs": "a", **body})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")


async def test_an_answer_that_would_be_too_large_is_refused_with_its_size(
    model_of: Callable[..., Model],
) -> None:
    app = create_app(Settings(max_answer_bytes=12 * 15 * 15), Registry([model_of()]), n_workers=1)
    async with running(app) as client:
        answer = await client.post("/attention", json={"inputs": "x" * 16})
        assert (answer.status_code, answer.json()["code"]) == (413, "answer_too_large")
        assert f"some {2 * 2 * 16 * 16 * 12} bytes" in answer.json()["error"]
        fits = await client.post(
            "/attention", json={"inputs": "x" * 15, "layers": [0], "heads": [0]}
        )
        assert fits.status_code == 200
