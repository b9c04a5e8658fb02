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
            {"inputs": "[MASK]", "parameters": {"targets": ["a", "kéng"]}},
            422,
            "invalid_field",
            "parameters.targets[1] has no token in the vocabulary",
        ),
        ({"inputs": "[MASK]", "parameters": {"targets": []}}, 422, "invalid_field", "targets"),
        (
            {"inputs": "[MASK]", "parameters": {"targets": ["k" * 33]}},
            422,
            "invalid_field",
            "has one of 33 tokens; this model takes at most 32",
        ),
        (
            {"inputs": "[MASK]", "parameters": {"targets": ["a"], "joint": True}},
            422,
            "invalid_field",
            "leave out targets",
        ),
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
    assert "kéng" not in answer.text


def chain(steps: list[list[dict[str, Any]]], tokens: str) -> float:
    """The product of the probabilities of one token a step."""
    scores = [
        next(c["score"] for c in candidates if c["token_str"] == token)
        for candidates, token in zip(steps, tokens, strict=True)
    ]
    return float(np.prod(scores))


async def test_a_target_of_several_tokens_is_scored_as_a_chain_and_never_by_its_first_piece(
    client: httpx.AsyncClient,
) -> None:
    (king, k) = await fill(client, "a [MASK]!", parameters={"targets": ["king", "k"], "top_k": 2})
    if king["token_str"] == "k":
        king, k = k, king
    assert (king["token"], king["token_str"], len(king["tokens"])) == (None, "king", 4)
    assert king["sequence"] == "a king!"
    assert "tokens" not in k
    every = {"top_k": 66}
    steps = [
        (await fill(client, f"a {'king'[:n]}{'[MASK]' * (4 - n)}!", parameters=every))
        for n in range(4)
    ]
    firsts = [step[0] if isinstance(step[0], list) else step for step in steps]
    assert king["score"] == pytest.approx(chain(firsts, "king"), rel=1e-4)


async def test_targets_of_each_mask_leave_the_other_masks_as_they_are(
    client: httpx.AsyncClient,
) -> None:
    first, second = await fill(
        client, "[MASK]o [MASK]r", parameters={"targets": ["ab", "x"], "top_k": 1}
    )
    assert first[0]["sequence"] == f"{first[0]['token_str']}o [MASK]r"
    assert second[0]["sequence"] == f"[MASK]o {second[0]['token_str']}r"


async def test_duplicate_and_unknown_targets_are_reported_by_their_places(
    client: httpx.AsyncClient,
) -> None:
    parameters = {"targets": ["a", "é", "b", "a", ""]}
    answer = await fill(client, "x[MASK]", parameters=parameters, partial=True)
    assert answer["targets"] == {"duplicates": [3], "unknown": [1, 4]}
    (mask,) = answer["results"][0]["masks"]
    assert {c["token_str"] for c in mask["candidates"]} == {"a", "b"}


async def test_a_joint_fill_of_one_mask_is_the_likeliest_token(client: httpx.AsyncClient) -> None:
    plain = await fill(client, "a[MASK]b")
    joint = await fill(client, "a[MASK]b", parameters={"joint": True})
    assert [c["tokens"] for c in joint] == [[c["token"]] for c in plain]
    assert [c["score"] for c in joint] == pytest.approx([c["score"] for c in plain], rel=1e-5)
    assert [c["sequence"] for c in joint] == [c["sequence"] for c in plain]


async def test_a_joint_fill_sums_the_log_probabilities_of_masks_filled_from_left_to_right(
    client: httpx.AsyncClient,
) -> None:
    text = "É [MASK]o be [MASK][MASK]!"
    fills = await fill(client, text, parameters={"joint": True, "top_k": 3})
    assert [f["logprob"] for f in fills] == sorted((f["logprob"] for f in fills), reverse=True)
    assert len({f["sequence"] for f in fills}) == 3
    for found in fills:
        filled, steps = text, []
        for token in found["token_strs"]:
            step = await fill(client, filled, parameters={"top_k": 66})
            steps.append(step[0] if isinstance(step[0], list) else step)
            filled = filled.replace("[MASK]", token, 1)
        assert found["sequence"] == filled
        product = chain(steps, found["token_strs"])
        assert found["score"] == pytest.approx(product, rel=1e-4)
        assert found["logprob"] == pytest.approx(np.log(product), rel=1e-4)


async def test_a_wider_beam_finds_a_fill_at_least_as_likely(client: httpx.AsyncClient) -> None:
    text = "[MASK]x[MASK]y[MASK]"
    narrow, wide = [
        await fill(client, text, parameters={"joint": True, "top_k": k}) for k in (1, 66)
    ]
    assert wide[0]["logprob"] >= narrow[0]["logprob"] - 1e-5


async def test_joint_fills_of_a_list_are_those_of_each_text_alone(
    client: httpx.AsyncClient,
) -> None:
    texts = ["a[MASK]", "[MASK]b[MASK][MASK]", "[MASK]" * 4]
    together = await fill(client, texts, parameters={"joint": True})
    for text, fills in zip(texts, together, strict=True):
        alone = await fill(client, text, parameters={"joint": True})
        assert [f["tokens"] for f in fills] == [f["tokens"] for f in alone]
        assert [f["logprob"] for f in fills] == pytest.approx([f["logprob"] for f in alone])


async def test_details_give_the_time_and_the_joint_fills_in_the_stable_shape(
    client: httpx.AsyncClient,
) -> None:
    answer = await fill(client, ["[MASK]b[MASK]"], details=True, parameters={"joint": True})
    (result,) = answer["results"]
    assert [mask["span"] for mask in result["masks"]] == [[0, 6], [7, 13]]
    assert len(result["joint"]) == 5
    times = answer["timings"]
    assert times["total_seconds"] >= times["run_seconds"] > 0


async def test_with_partial_the_good_texts_are_answered_and_the_others_told(
    client: httpx.AsyncClient,
) -> None:
    texts = ["a[MASK]", "no mask", "", "[MASK]b"]
    answer = await client.post("/fill-mask", json={"inputs": texts, "partial": True})
    assert answer.status_code == 200
    assert answer.headers["x-failed-inputs"] == "1,2"
    first, second, third, fourth = answer.json()["results"]
    assert (second["code"], second["index"]) == ("no_mask", 1)
    assert (third["code"], third["index"]) == ("empty_text", 2)
    alone = [await fill(client, text) for text in (texts[0], texts[3])]
    for found, one in zip((first, fourth), alone, strict=True):
        assert [c["token"] for c in found["masks"][0]["candidates"]] == [c["token"] for c in one]


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


@pytest.mark.slow
async def test_a_candidate_that_is_some_bytes_of_a_character_is_marked(
    model_of: Callable[..., Model],
) -> None:
    app = create_app(Settings(), Registry([model_of("mhsa", tokenizer="bpe")]), n_workers=1)
    async with running(app) as client:
        candidates = await fill(client, "The [MASK] of", parameters={"top_k": 400})
        marked = [c for c in candidates if c.get("partial_character")]
        assert marked
        assert all("\ufffd" in c["token_str"] for c in marked)
        assert not any("\ufffd" in c["token_str"] for c in candidates if c not in marked)


async def test_more_passes_than_one_request_may_ask_are_refused_with_the_figure(
    model_of: Callable[..., Model],
) -> None:
    app = create_app(Settings(max_passes=20), Registry([model_of()]), n_workers=1)
    async with running(app) as client:
        for parameters, n_passes in (
            ({"joint": True, "top_k": 10}, 1 + 2 * 10),
            ({"targets": ["abcdefgh"]}, 3 * 8),
        ):
            body = {"inputs": "[MASK]a[MASK]b[MASK]", "parameters": parameters}
            answer = await client.post("/fill-mask", json=body)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_much_work")
            assert f"needs {n_passes} passes" in answer.json()["error"]
            assert "at most 20" in answer.json()["error"]


async def test_an_answer_that_would_repeat_a_long_text_too_often_is_refused(
    client: httpx.AsyncClient,
) -> None:
    text = "[MASK]" * 32 + "x" * 50_000
    body = {"inputs": text, "parameters": {"top_k": 66}}
    answer = await client.post("/fill-mask", json=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "answer_too_large")
    few = await fill(client, text, parameters={"top_k": 1})
    assert len(few) == 32
