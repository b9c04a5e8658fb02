"""Texts that break software, sent to every endpoint."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from service.app import create_app
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running
from tests.texts import FORMS, naughty, normalized

HUGE = [character * 100_000 for character in ("x", "😀", "\u0301")]


@pytest_asyncio.fixture
async def client(bundled: Model) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(), Registry([bundled]), n_workers=2)
    async with running(app) as client:
        yield client


def by(n: int, texts: list[str]) -> Iterator[list[str]]:
    return (texts[start : start + n] for start in range(0, len(texts), n))


async def test_tokens_of_naughty_texts_are_in_order_and_are_the_text(
    client: httpx.AsyncClient,
) -> None:
    forms = [text for form in FORMS for text in by(200, normalized(form))]
    for texts in by(200, naughty() + ["".join(characters) for characters in forms]):
        answer = await client.post("/tokenize", json={"inputs": texts})
        assert answer.status_code == 200, answer.text
        for text, tokens in zip(texts, answer.json(), strict=True):
            assert "".join(token["text"] for token in tokens) == text
            spans = [(token["start"], token["stop"]) for token in tokens]
            assert spans == sorted(spans)
            assert all(text[t["start"] : t["stop"]] == t["text"] for t in tokens)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/embed", "/fill-mask", "/attention", "/score"])
async def test_every_naughty_text_is_answered(client: httpx.AsyncClient, path: str) -> None:
    texts = naughty()[:: 40 if path == "/score" else 4 if path == "/attention" else 1]
    for some in by(50, texts):
        inputs = [f"{text}[MASK]" for text in some] if path == "/fill-mask" else some
        more = {"layers": [0], "top_k": 1} if path == "/attention" else {}
        body = {"inputs": inputs, "partial": True, **more}
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        results = answer.json() if isinstance(answer.json(), list) else answer.json()["results"]
        assert len(results) == len(some)
        assert all(result.get("code") in (None, "mask_not_allowed") for result in results)


async def test_a_naughty_text_stays_as_it_is_around_what_fills_its_mask(
    client: httpx.AsyncClient,
) -> None:
    texts = [text for text in naughty() if "[MASK]" not in text and len(text) < 60]
    for some in by(200, texts):
        inputs = [f"{text}[MASK]{text}" for text in some]
        answer = await client.post(
            "/fill-mask", json={"inputs": inputs, "parameters": {"top_k": 1}}
        )
        assert answer.status_code == 200, answer.text
        for text, (candidate,) in zip(some, answer.json(), strict=True):
            assert candidate["sequence"] == f"{text}{candidate['token_str']}{text}"


@pytest.mark.parametrize("truncate", [True, False])
async def test_a_hundred_thousand_characters_without_a_space_are_cut_or_refused(
    client: httpx.AsyncClient, truncate: bool
) -> None:
    for text in HUGE:
        for path in ("/embed", "/fill-mask", "/score", "/attention", "/embed_all"):
            inputs = f"[MASK]{text}" if path == "/fill-mask" else text
            answer = await client.post(path, json={"inputs": inputs, "truncate": truncate})
            assert answer.status_code == (200 if truncate else 413), answer.text[:200]
    (tokens,) = (await client.post("/tokenize", json={"inputs": HUGE[1]})).json()
    assert len(tokens) == 100_000


async def test_naughty_names_options_and_targets_are_refused_and_not_repeated(
    client: httpx.AsyncClient,
) -> None:
    for text in naughty()[::8]:
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("/embed", {"inputs": "a", "model": text}),
            ("/embed", {"inputs": "a", "pooling": text}),
            ("/embed", {"inputs": "a", text: 1}),
            ("/fill-mask", {"inputs": "a[MASK]", "parameters": {"targets": [text]}}),
            ("/v1/embeddings", {"input": "a", "model": text}),
        ]
        for path, body in bodies:
            answer = await client.post(path, json=body)
            assert answer.status_code < 500
            if answer.status_code != 200 and len(text) > 20 and text not in body:
                assert text not in answer.json().get("error", "")
        for path in (f"/v1/models/{quote(text)}", f"/v2/models/{quote(text)}"):
            answer = await client.get(path)
            assert answer.status_code < 500
        answer = await client.get("/info", params={"model": text})
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_model")
