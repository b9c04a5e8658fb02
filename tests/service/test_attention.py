"""POST /attention."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import safetensors.numpy

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
    [
        {"layers": [2]},
        {"heads": [-3]},
        {"layers": []},
        {"reduce": "median"},
        {"top_k": 0},
        {"kind": "influence", "layers": [0]},
        {"kind": "influence", "reduce": "mean"},
    ],
)
async def test_a_choice_the_model_does_not_have_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    answer = await client.post("/attention", json={"inputs": "a", **body})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")


async def test_rollout_multiplies_the_layers_of_self_attention_and_is_refused_for_signed_maps(
    client: httpx.AsyncClient,
) -> None:
    every = await attention(client, "To be", reduce="mean")
    body = {"inputs": "To be", "reduce": "rollout"}
    answer = await client.post("/attention", json=body)
    if every["kind"] == "token_mixing":
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
        assert "the weights of this model are signed" in answer.json()["error"]
        return
    first, second = (0.5 * np.array(layer) + 0.5 * np.eye(5) for layer in every["weights"])
    weights = np.array(answer.json()["weights"])
    assert weights == pytest.approx(second @ first, abs=1e-6)
    assert weights.sum(axis=1) == pytest.approx(1, abs=1e-5)
    one = await attention(client, "To be", reduce="rollout", layers=[0])
    assert np.array(one["weights"]) == pytest.approx(first, abs=1e-6)


async def test_influence_is_how_far_masking_each_position_moves_each_output(
    client: httpx.AsyncClient,
) -> None:
    text = "To [MASK]e"
    answer = await attention(client, text, kind="influence")
    influence = np.array(answer["weights"])
    assert (answer["kind"], answer["layers"], answer["heads"]) == ("influence", [], [])
    assert influence.shape == (5, 5)
    spans = [(token["start"], token["end"]) for token in answer["tokens"]]
    texts = [text, *(f"{text[:start]}[MASK]{text[end:]}" for start, end in spans)]
    plain, *masked = np.array((await client.post("/embed_all", json={"inputs": texts})).json())
    for key, hidden in enumerate(masked):
        moved = np.linalg.norm(hidden - plain, axis=1) / np.linalg.norm(plain, axis=1)
        assert influence[:, key] == pytest.approx(moved, abs=1e-5)
    assert influence[:, 3] == pytest.approx(0, abs=1e-6)  # masked already
    assert influence[:, [0, 1, 2, 4]].max() > 0.01


async def test_an_influence_does_not_depend_on_the_texts_beside_it(
    client: httpx.AsyncClient,
) -> None:
    texts = ["To be", "x" * 20, "a"]
    together = await attention(client, texts, kind="influence", top_k=3)
    for text, answer in zip(texts, together, strict=True):
        alone = await attention(client, text, kind="influence", top_k=3)
        found, wanted = np.array(answer["weights"]), np.array(alone["weights"])
        assert found[..., 1] == pytest.approx(wanted[..., 1], abs=1e-5)


async def test_a_kind_that_the_model_does_not_have_is_refused_with_those_it_has(
    client: httpx.AsyncClient,
) -> None:
    own = (await client.get("/info")).json()["kind"]
    other = {"attention": "token_mixing", "token_mixing": "attention"}[own]
    assert (await attention(client, "a", kind=own))["kind"] == own
    answer = await client.post("/attention", json={"inputs": "a", "kind": other})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_offered")
    assert answer.json()["error"].endswith(f"there are: {own}, influence.")


async def test_more_passes_than_one_request_may_ask_are_refused_with_the_figure(
    model_of: Callable[..., Model],
) -> None:
    app = create_app(Settings(max_passes=20), Registry([model_of()]), n_workers=1)
    async with running(app) as client:
        body = {"inputs": ["x" * 9, "x" * 10], "kind": "influence"}
        answer = await client.post("/attention", json=body)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_much_work")
        assert "needs 21 passes" in answer.json()["error"]


async def test_safetensors_hold_the_same_weights_and_the_tokens(
    client: httpx.AsyncClient,
) -> None:
    accept = {"accept": "application/x-safetensors"}
    for options in ({}, {"reduce": "mean", "top_k": 2}, {"kind": "influence"}):
        body = {"inputs": ["To be", "a"], **options}
        answer = await client.post("/attention", json=body, headers=accept)
        loaded = safetensors.numpy.load(answer.content)
        length = int.from_bytes(answer.content[:8], "little")
        header = json.loads(answer.content[8 : 8 + length])
        details = json.loads(header["__metadata__"]["details"])
        for index, wanted in enumerate(await attention(client, body["inputs"], **options)):
            assert details[index]["tokens"] == wanted["tokens"]
            weights = np.array(wanted["weights"])
            if "top_k" in options:
                assert np.array_equal(loaded[f"keys.{index}"], weights[..., 0])
                weights = weights[..., 1]
            assert loaded[f"weights.{index}"] == pytest.approx(weights, abs=1e-5)


async def test_with_partial_the_good_texts_are_answered(client: httpx.AsyncClient) -> None:
    first, second = await attention(client, ["", "ab"], partial=True)
    assert (first["code"], first["index"]) == ("empty_text", 0)
    assert np.shape(second["weights"]) == (2, 2, 2, 2)


@pytest.mark.slow
async def test_prefix_and_suffix_are_left_out_on_request(model_of: Callable[..., Model]) -> None:
    app = create_app(Settings(), Registry([model_of("mhsa", tokenizer="bpe")]), n_workers=1)
    async with running(app) as client:
        every = await attention(client, "The king")
        assert [every["tokens"][n]["text"] for n in (0, -1)] == ["[CLS]", "[SEP]"]
        inner = await attention(client, "The king", special_tokens=False)
        assert inner["tokens"] == every["tokens"][1:-1]
        expected = np.array(every["weights"])[:, :, 1:-1, 1:-1]
        assert np.array_equal(inner["weights"], expected)
        few = await attention(client, "The king", special_tokens=False, top_k=1, reduce="mean")
        assert np.array(few["weights"])[..., 0, 0].max() < len(inner["tokens"])
        influence = await attention(client, "The king", special_tokens=False, kind="influence")
        assert np.shape(influence["weights"]) == (len(inner["tokens"]),) * 2


async def test_the_token_mixing_map_is_the_mean_jacobian_of_the_token_mlp(
    model_of: Callable[..., Model], char_tokenizer: Any
) -> None:
    import torch

    from tests.conftest import random_encoder

    app = create_app(Settings(), Registry([model_of("mlp_mixer")]), n_workers=1)
    async with running(app) as client:
        answer = await attention(client, "To be", layers=[0])
    encoder = random_encoder("mlp_mixer", vocab_size=char_tokenizer.vocab_size)
    block, ids = encoder.blocks[0], torch.tensor([char_tokenizer.encode("To be").ids])
    read = block.mixer_norm(encoder.embedding(ids)).detach()
    real = torch.ones(1, 5, dtype=torch.bool)
    mixed = torch.autograd.functional.jacobian(lambda x: block.mixer(x[None], real)[0], read[0])
    of_each_feature = mixed.diagonal(dim1=1, dim2=3)  # [query, key, feature]
    by_head = of_each_feature.unflatten(2, (2, -1)).mean(dim=3).permute(2, 0, 1)
    assert np.array(answer["weights"][0]) == pytest.approx(by_head.numpy(), abs=1e-5)


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
