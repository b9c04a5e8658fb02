"""POST /fill-mask."""

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


async def fill(client: httpx.AsyncClient, inputs: Any, **fields: Any) -> Any:
    answer = await client.post("/fill-mask", json={"inputs": inputs, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_text_with_one_mask_answers_as_the_hugging_face_task_does(
    client: httpx.AsyncClient,
) -> None:
    candidates = await fill(client, "To be or n[MASK]t")
    assert [set(candidate) for candidate in candidates] == [
        {"score", "token", "token_str", "sequence"}
    ] * 5
    scores = [candidate["score"] for candidate in candidates]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


async def test_several_masks_answer_with_a_list_per_mask_and_keep_the_other_masks(
    client: httpx.AsyncClient,
) -> None:
    first, second = await fill(client, "[MASK]o be [MASK]r")
    assert first[0]["sequence"] == f"{first[0]['token_str']}o be [MASK]r"
    assert second[0]["sequence"] == f"[MASK]o be {second[0]['token_str']}r"


async def test_a_list_of_texts_answers_with_a_list_per_text(client: httpx.AsyncClient) -> None:
    one = await fill(client, "a [MASK]")
    two = await fill(client, "[MASK] [MASK]")
    assert await fill(client, ["a [MASK]", "[MASK] [MASK]"]) == [one, two]
    assert await fill(client, ["a [MASK]"]) == [one]


async def test_the_sequence_keeps_the_callers_own_text(client: httpx.AsyncClient) -> None:
    text = "  ÉTÉ \t😀 [MASK]  ñ\n"
    for candidate in await fill(client, text):
        assert candidate["sequence"] == text.replace("[MASK]", candidate["token_str"])


async def test_all_probabilities_of_the_vocabulary_sum_to_one(
    client: httpx.AsyncClient, char_tokenizer: Any
) -> None:
    size = char_tokenizer.vocab_size
    candidates = await fill(client, "a[MASK]", parameters={"top_k": size})
    assert len(candidates) == size
    assert sum(candidate["score"] for candidate in candidates) == pytest.approx(1, abs=1e-5)


async def test_top_candidates_are_the_first_of_all_candidates(client: httpx.AsyncClient) -> None:
    few = await fill(client, "a[MASK]", parameters={"top_k": 3})
    every = await fill(client, "a[MASK]", parameters={"top_k": 66})
    assert [c["token"] for c in few] == [c["token"] for c in every[:3]]
    # Two graph outputs of the same numbers; JSON holds them as doubles.
    assert [c["score"] for c in few] == pytest.approx([c["score"] for c in every[:3]], rel=1e-6)


async def test_targets_are_scored_over_the_whole_vocabulary_each_once(
    client: httpx.AsyncClient,
) -> None:
    every = {
        c["token_str"]: c["score"] for c in await fill(client, "a[MASK]", parameters={"top_k": 66})
    }
    targets = await fill(client, "a[MASK]", parameters={"targets": ["x", "y", "x"]})
    assert sorted(c["token_str"] for c in targets) == ["x", "y"]
    assert all(c["score"] == pytest.approx(every[c["token_str"]], rel=1e-6) for c in targets)


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ({"inputs": "no mask"}, 400, "no_mask", "The text has no [MASK]"),
        ({"inputs": ""}, 400, "empty_text", "The text is empty."),
        ({"inputs": "[MASK]", "parameters": {"top_k": 67}}, 422, "invalid_field", "has 66 tokens"),
        (
            {"inputs": "[MASK]", "parameters": {"top_k": 0}},
            422,
            "invalid_field",
            "parameters.top_k",
        ),
        (
            {"inputs": "[MASK]", "parameters": {"targets": ["a", "king"]}},
            422,
            "invalid_field",
            "parameters.targets[1] is not one token",
        ),
        ({"inputs": "[MASK]", "parameters": {"targets": []}}, 422, "invalid_field", "targets"),
        ({"inputs": "[MASK]", "paramters": {}}, 422, "invalid_field", "paramters"),
        ({"inputs": "[MASK]", "model": "other"}, 404, "unknown_model", "there is: tiny-char"),
    ],
)
async def test_what_cannot_be_answered_is_refused_with_what_is_allowed(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, code: str, message: str
) -> None:
    answer = await client.post("/fill-mask", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert message in answer.json()["error"]
    assert "king" not in answer.text


async def test_an_error_in_a_list_names_the_text(client: httpx.AsyncClient) -> None:
    answer = await client.post("/fill-mask", json={"inputs": ["a [MASK]", "no mask"]})
    assert answer.json()["index"] == 1
    answer = await client.post("/fill-mask", json={"inputs": ["a [MASK]", ""]})
    assert (answer.json()["code"], answer.json()["index"]) == ("empty_text", 1)


@pytest.mark.parametrize("before", [0, 10, 500])
async def test_a_long_text_keeps_the_window_around_its_mask_and_says_so(
    client: httpx.AsyncClient, before: int
) -> None:
    text = "x" * before + "[MASK]" + "y" * (600 - before)
    answer = await client.post("/fill-mask", json={"inputs": text, "details": True})
    (result,) = answer.json()["results"]
    assert result["truncated"]
    assert answer.headers["x-truncated-inputs"] == "0"
    start, stop = result["kept"]
    assert start <= before < stop
    assert stop - start == 32
    assert result["masks"][0]["candidates"][0]["sequence"].endswith("y" * (600 - before))


async def test_a_long_text_is_refused_where_cutting_is_not_wanted(
    client: httpx.AsyncClient,
) -> None:
    body = {"inputs": "[MASK]" + "y" * 40, "truncate": False}
    answer = await client.post("/fill-mask", json=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "text_too_long")
    assert "41 tokens" in answer.json()["error"]
    assert "at most 32" in answer.json()["error"]


async def test_masks_that_no_window_holds_are_refused(client: httpx.AsyncClient) -> None:
    text = "[MASK]" + "y" * 40 + "[MASK]"
    answer = await client.post("/fill-mask", json={"inputs": ["a[MASK]", text]})
    assert (answer.status_code, answer.json()["index"]) == (413, 1)
    assert "span 42 tokens" in answer.json()["error"]


async def test_details_give_spans_in_code_points(client: httpx.AsyncClient) -> None:
    answer = await fill(client, "😀é[MASK]", details=True)
    (mask,) = answer["results"][0]["masks"]
    assert mask["span"] == [2, 8]
    assert answer["results"][0]["n_tokens"] == 3
    assert not answer["results"][0]["truncated"]


async def test_special_tokens_written_out_are_ordinary_text(client: httpx.AsyncClient) -> None:
    answer = await fill(client, "[PAD][MASK]", details=True)
    assert answer["results"][0]["n_tokens"] == len("[PAD]") + 1


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["bpe", "wordpiece"])
async def test_every_kind_of_tokenizer_is_served(
    model_of: Callable[..., Model], tokenizer: str
) -> None:
    app = create_app(Settings(), Registry([model_of("mhsa", tokenizer=tokenizer)]), n_workers=1)
    async with running(app) as client:
        answer = await fill(client, "The [MASK] of France", details=True)
        (mask,) = answer["results"][0]["masks"]
        start, end = mask["span"]
        assert "The [MASK] of France"[start:end].strip() == "[MASK]"
        for candidate in mask["candidates"]:
            assert candidate["sequence"].startswith("The")
            assert candidate["sequence"].endswith(" of France")
        vector = (await client.post("/embed", json={"inputs": "of France"})).json()[0]
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        tokens = (await client.post("/attention", json={"inputs": "of France"})).json()["tokens"]
        assert [tokens[0]["text"], tokens[-1]["text"]] == ["[CLS]", "[SEP]"]


async def test_an_answer_that_would_repeat_a_long_text_too_often_is_refused(
    client: httpx.AsyncClient,
) -> None:
    text = "[MASK]" * 32 + "x" * 50_000
    body = {"inputs": text, "parameters": {"top_k": 66}}
    answer = await client.post("/fill-mask", json=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "answer_too_large")
    few = await fill(client, text, parameters={"top_k": 1})
    assert len(few) == 32
