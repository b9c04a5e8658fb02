"""Where the fill-mask pipeline of Hugging Face is odd: what is done here instead, row by row.

The table is in docs/api.md, "Beside the Hugging Face pipeline"; the tests are in its order.
"""

import copy
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from service.app import create_app
from service.engine import Engine
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

ONE, TWO = "a [MASK]", "[MASK] or [MASK]"


@pytest_asyncio.fixture
async def client(bundled: Model) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(), Registry([bundled]), n_workers=1)
    async with running(app) as client:
        yield client


async def fill(client: httpx.AsyncClient, inputs: Any, **more: Any) -> Any:
    fields = {"details", "partial", "truncate"} & more.keys()
    body = {"inputs": inputs} | {name: more.pop(name) for name in fields}
    answer = await client.post("/fill-mask", json=body | {"parameters": more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(client: httpx.AsyncClient, inputs: Any, **more: Any) -> tuple[int, str, Any]:
    fields = {"truncate"} & more.keys()
    body = {"inputs": inputs} | {name: more.pop(name) for name in fields}
    answer = await client.post("/fill-mask", json=body | {"parameters": more})
    error = answer.json()
    return answer.status_code, error["code"], error.get("index")


def is_candidates(value: Any) -> bool:
    return all(isinstance(candidate, dict) and "token_str" in candidate for candidate in value)


async def test_a_text_with_one_mask_has_a_list_of_candidates(client: httpx.AsyncClient) -> None:
    candidates = await fill(client, ONE)
    assert len(candidates) == 5
    assert is_candidates(candidates)


async def test_a_list_of_one_text_is_answered_as_a_list_of_one(client: httpx.AsyncClient) -> None:
    assert await fill(client, [ONE]) == [await fill(client, ONE)]


async def test_a_list_of_texts_has_a_list_per_text(client: httpx.AsyncClient) -> None:
    both = await fill(client, [ONE, "[MASK] b"])
    assert len(both) == 2
    assert all(map(is_candidates, both))


async def test_several_masks_have_a_list_each_and_the_text_stays_as_written(
    client: httpx.AsyncClient,
) -> None:
    first, second = await fill(client, TWO)
    assert all(c["sequence"] == f"{c['token_str']} or [MASK]" for c in first)
    assert all(c["sequence"] == f"[MASK] or {c['token_str']}" for c in second)


async def test_a_list_of_one_text_with_several_masks_is_a_list_of_its_answer(
    client: httpx.AsyncClient,
) -> None:
    assert await fill(client, [TWO]) == [await fill(client, TWO)]


async def test_details_have_one_shape_however_many_masks_a_text_has(
    client: httpx.AsyncClient,
) -> None:
    for inputs in (ONE, [ONE], TWO, [ONE, TWO]):
        answer = await fill(client, inputs, details=True)
        for result in answer["results"]:
            assert all(is_candidates(mask["candidates"]) for mask in result["masks"])


async def test_a_text_without_a_mask_is_named_and_loses_the_others_only_if_that_is_wanted(
    client: httpx.AsyncClient,
) -> None:
    assert await refused(client, [ONE, "no mask"]) == (400, "no_mask", 1)
    good, bad = (await fill(client, [ONE, "no mask"], partial=True))["results"]
    assert is_candidates(good["masks"][0]["candidates"])
    assert bad["code"] == "no_mask"


async def test_an_empty_text_and_an_empty_list_are_told_apart(client: httpx.AsyncClient) -> None:
    assert await refused(client, "") == (400, "empty_text", None)
    assert await refused(client, []) == (422, "invalid_field", None)


@pytest.mark.parametrize("top_k", [0, -1, 67, 10**30])
async def test_a_top_k_that_the_vocabulary_does_not_have_is_refused(
    client: httpx.AsyncClient, top_k: int
) -> None:
    assert await refused(client, ONE, top_k=top_k) in (
        (422, "invalid_field", None),
        (400, "malformed_json", None),  # a number that no parser of ours holds
    )
    assert len(await fill(client, ONE, top_k=66)) == 66


async def test_a_target_that_comes_twice_is_scored_once_and_reported(
    client: httpx.AsyncClient,
) -> None:
    assert len(await fill(client, ONE, targets=["k", "k"])) == 1
    answer = await fill(client, ONE, targets=["k", "q", "k"], details=True)
    assert answer["targets"] == {"duplicates": [2], "unknown": []}


async def test_a_target_of_several_tokens_is_scored_whole(client: httpx.AsyncClient) -> None:
    long, short = sorted(
        await fill(client, ONE, targets=["king", "k"]), key=lambda c: -len(c["token_str"])
    )
    assert (long["token_str"], long["token"], len(long["tokens"])) == ("king", None, 4)
    assert long["sequence"] == "a king"
    assert 0 < long["score"] != short["score"]


async def test_a_target_that_cannot_be_written_is_refused_with_its_place_or_left_out(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post(
        "/fill-mask", json={"inputs": ONE, "parameters": {"targets": ["k", "漢"]}}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    assert "parameters.targets[1]" in answer.json()["error"]
    assert "漢" not in answer.text
    partial = await fill(client, ONE, targets=["k", "漢"], partial=True)
    assert partial["targets"]["unknown"] == [1]
    assert len(partial["results"][0]["masks"][0]["candidates"]) == 1


@pytest.mark.parametrize("targets", [[], [""]])
async def test_no_target_and_an_empty_one_are_refused(
    client: httpx.AsyncClient, targets: list[str]
) -> None:
    assert await refused(client, ONE, targets=targets) == (422, "invalid_field", None)


async def test_scores_of_targets_are_over_the_whole_vocabulary(client: httpx.AsyncClient) -> None:
    everything = {c["token_str"]: c["score"] for c in await fill(client, ONE, top_k=66)}
    for candidate in await fill(client, ONE, targets=["k", "q"]):
        assert candidate["score"] == pytest.approx(everything[candidate["token_str"]], abs=1e-6)


async def test_a_text_that_is_too_long_is_cut_and_said_to_be_or_refused(
    client: httpx.AsyncClient,
) -> None:
    long = "[MASK]" + "x" * 100
    (result,) = (await fill(client, long, details=True))["results"]
    assert (result["n_tokens"], result["kept"], result["truncated"]) == (101, [0, 64], True)
    assert await refused(client, long, truncate=False) == (413, "text_too_long", None)


async def test_a_mask_at_the_end_of_a_long_text_is_kept(client: httpx.AsyncClient) -> None:
    candidates = await fill(client, "x" * 100 + "[MASK]", truncate=True)
    assert candidates[0]["sequence"] == "x" * 100 + candidates[0]["token_str"]


async def test_unknown_characters_case_and_accents_stay_in_the_sequence(
    client: httpx.AsyncClient,
) -> None:
    text = "Ünïcødé 漢字\t  [MASK]  ÉCOLE"
    for candidate in await fill(client, text):
        assert candidate["sequence"] == text.replace("[MASK]", candidate["token_str"])


class NaN(Engine):
    """An engine whose numbers are none."""

    def __init__(self, engine: Engine) -> None:
        self.__dict__ = dict(engine.__dict__)

    def run(self, graph: str, inputs: Any, outputs: Any) -> Any:
        arrays = super().run(graph, inputs, outputs)
        return [np.full_like(a, np.nan) if a.dtype.kind == "f" else a for a in arrays]


async def test_logits_that_are_nan_are_an_error_that_names_the_text(bundled: Model) -> None:
    model = copy.copy(bundled)
    model.engine = NaN(bundled.engine)
    app = create_app(Settings(), Registry([model]), n_workers=1)
    async with running(app) as client:
        assert await refused(client, [ONE, ONE]) == (424, "non_finite", 0)
