"""What other servers were found to do wrong, each as a sentence that holds here.

Beside these: `test_tei.py` (tokens and offsets of mixed scripts), `test_errors.py` (a full queue, a
vector that is not finite), `test_embed.py` (token ids beyond the vocabulary, base64),
`test_models.py` (CUDA where there is none), `test_reload.py` (a slow reload), `test_settings.py`
(several processes, whose scrapes would differ, are refused).
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from fastapi import FastAPI
from numpy.typing import NDArray

from model.corpus import shipped
from service.app import create_app
from service.models import Model, Work, bundled_names, load_model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import Server, running

MAX_TOKENS = 64


@pytest.fixture(scope="module", params=bundled_names())
def shipping(request: pytest.FixtureRequest) -> Model:
    """Each of the models that ship."""
    return load_model(request.param, device="cpu")


@pytest_asyncio.fixture
async def service(shipping: Model) -> AsyncIterator[httpx.AsyncClient]:
    async with running(application(shipping)) as client:
        yield client


def application(model: Model, **settings: Any) -> FastAPI:
    return create_app(Settings(**settings), Registry([model]), n_workers=1)


async def answer_to(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_list_with_a_long_text_is_embedded_as_each_of_its_texts_alone(
    service: httpx.AsyncClient,
) -> None:
    texts = ["To be", "or not to be, " * 40, "that is the question"]
    together = await answer_to(service, "/embed", inputs=texts, truncate=True)
    alone = [(await answer_to(service, "/embed", inputs=t, truncate=True))[0] for t in texts]
    assert np.array(together) == pytest.approx(np.array(alone), abs=1e-5)


async def test_two_masks_have_a_list_each_and_are_not_mistaken_for_two_texts(
    service: httpx.AsyncClient,
) -> None:
    parameters, text = {"top_k": 1}, "T[MASK] be, or n[MASK]t"
    first, second = await answer_to(service, "/fill-mask", inputs=text, parameters=parameters)
    assert [len(first), len(second)] == [1, 1]
    assert first[0]["sequence"] == f"T{first[0]['token_str']} be, or n[MASK]t"
    assert second[0]["sequence"] == f"T[MASK] be, or n{second[0]['token_str']}t"
    both = ["T[MASK] be", "n[MASK]t"]
    two_texts = await answer_to(
        service, "/fill-mask", inputs=both, parameters=parameters, details=True
    )
    two_masks = await answer_to(
        service, "/fill-mask", inputs=text, parameters=parameters, details=True
    )
    assert [len(result["masks"]) for result in two_texts["results"]] == [1, 1]
    assert [len(result["masks"]) for result in two_masks["results"]] == [2]


async def test_a_mask_is_filled_alike_alone_and_beside_a_text_ten_times_longer(
    service: httpx.AsyncClient,
) -> None:
    short, long = "ques[MASK]", "whether 'tis nobler in the mind to suffer the sl[MASK]ngs"
    alone = await answer_to(service, "/fill-mask", inputs=short)
    beside, _ = await answer_to(service, "/fill-mask", inputs=[short, long])
    assert [c["token"] for c in alone] == [c["token"] for c in beside]
    assert [c["score"] for c in alone] == pytest.approx([c["score"] for c in beside], abs=1e-5)


async def test_vectors_and_rankings_do_not_depend_on_how_many_texts_a_batch_holds(
    shipping: Model,
) -> None:
    lines = [line for line in shipped().text.splitlines() if len(line) > 3]
    texts, vectors = random.Random(5).sample(lines, 100), []
    for n_rows in (1, 8, 32):
        app = application(shipping, max_batch_cost=n_rows * MAX_TOKENS)
        async with running(app) as client:
            vectors.append(np.array(await answer_to(client, "/embed", inputs=texts)))
    for other in vectors[1:]:
        assert (vectors[0] * other).sum(axis=1).min() >= 1 - 1e-6
        assert np.array_equal(_ranking(vectors[0]), _ranking(other))


def _ranking(vectors: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each text the others, the nearest first; what lies within 1e-5 counts as level."""
    return np.argsort(-np.round(vectors @ vectors.T, 5), axis=1, kind="stable")[:, :10]


class Failing(Model):
    """A model whose graph fails while it is told to."""

    def __init__(self, model: Model) -> None:
        self.__dict__ = dict(model.__dict__)
        self.fails = True

    def run(self, graph: str, payloads: Sequence[Work]) -> Any:
        if self.fails:
            raise RuntimeError("out of memory")
        return super().run(graph, payloads)


async def test_a_batch_that_fails_is_told_to_all_its_callers_and_the_next_succeeds(
    bundled: Model,
) -> None:
    failing = Failing(bundled)
    app = application(failing)
    read = app.state.metrics.registry.get_sample_value
    labels = {"reason": "backend_error", "model": "shakespeare-mhsa"}
    async with running(app) as client:
        answers = await asyncio.gather(*(client.post("/embed", json={"inputs": t}) for t in "abc"))
        assert [answer.status_code for answer in answers] == [424] * 3
        assert {answer.json()["error_type"] for answer in answers} == {"Backend"}
        assert read("maskwright_failures_total", labels) == 3
        failing.fails = False
        await answer_to(client, "/embed", inputs="a")
        assert (await client.get("/readyz")).status_code == 200


BODIES: dict[str, dict[str, Any]] = {
    "/fill-mask": {"inputs": "a[MASK]"},
    "/score": {"inputs": "ab"},
    "/embed": {"inputs": "a"},
    "/embed_all": {"inputs": "a"},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    "/attention": {"inputs": "ab"},
    "/v1/embeddings": {"model": "shakespeare-mhsa", "input": "a"},
    "/tokenize": {"inputs": "a"},
    "/decode": {"ids": [5]},
}
WITHOUT_THE_MODEL = ("/tokenize", "/decode")
OF_WORK = {"maskwright_tokens_total", "maskwright_texts_total"}  # and how much of it


@pytest.mark.parametrize("path", BODIES)
async def test_one_request_counts_one_request_one_success_and_no_failure(
    bundled: Model, path: str
) -> None:
    app = application(bundled)

    def counters() -> dict[tuple[str, ...], float]:
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in app.state.metrics.registry.collect()
            for sample in family.samples
            if sample.name.startswith("maskwright_") and sample.name.endswith("_total")
        }

    async with running(app) as client:
        before = counters()
        await answer_to(client, path, **BODIES[path])
        after = counters()
    grown = {key: after[key] - value for key, value in before.items() if after[key] != value}
    assert grown.pop(("maskwright_http_requests_total", *sorted(("2xx", "POST", path)))) == 1
    assert {name for name, *_ in grown} == (set() if path in WITHOUT_THE_MODEL else OF_WORK)


def test_a_body_over_the_limit_is_refused_with_both_sizes_and_the_client_goes_on(
    bundled_server: Server,
) -> None:
    with httpx.Client(base_url=bundled_server.url) as client:
        body = b'{"inputs": "' + b"x" * 2_000_000 + b'"}'
        answer = client.post("/embed", content=body)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert f"{len(body)} bytes; at most 1048576 bytes" in answer.json()["error"]
        assert client.post("/embed", json={"inputs": "x"}).status_code == 200


def test_six_thousand_texts_are_refused_with_the_limit_and_a_thousand_come_in_order(
    bundled_server: Server,
) -> None:
    texts = [f"text {number}" for number in range(6000)]
    with httpx.Client(base_url=bundled_server.url, timeout=60) as client:
        answer = client.post("/embed", json={"inputs": texts})
        assert (answer.status_code, answer.json()["code"]) == (413, "too_many_texts")
        assert "6000 texts; at most 1024" in answer.json()["error"]
        vectors = client.post("/embed", json={"inputs": texts[:1000]}).json()
        assert len(vectors) == 1000
        for number in (0, 499, 999):
            (alone,) = client.post("/embed", json={"inputs": texts[number]}).json()
            assert vectors[number] == pytest.approx(alone, abs=1e-5)


def test_an_id_beyond_the_vocabulary_is_refused_with_its_place_and_the_server_goes_on(
    bundled_server: Server,
) -> None:
    for path in ("/embed", "/embed_all"):
        answer = httpx.post(bundled_server.url + path, json={"inputs": [[5, 6], [5, 66]]})
        assert answer.status_code == 422
        assert answer.json()["index"] == 1
        assert "66" in answer.json()["error"]
    assert httpx.post(f"{bundled_server.url}/embed", json={"inputs": [5, 65]}).status_code == 200


@pytest.mark.slow
def test_memory_stays_over_rounds_of_every_length(bundled_server: Server) -> None:
    lengths = list(range(1, MAX_TOKENS + 1)) * 3  # `make soak` sends a hundred thousand requests
    status = Path(f"/proc/{bundled_server.process.pid}/status")
    resident = []
    with httpx.Client(base_url=bundled_server.url) as client:
        for seed in range(3):
            for length in random.Random(seed).sample(lengths, len(lengths)):
                assert client.post("/embed", json={"inputs": "x" * length}).status_code == 200
            resident.append(int(re.findall(r"VmRSS:\s+(\d+)", status.read_text())[0]))
    assert resident[2] <= 1.05 * resident[0]


@pytest.mark.parametrize("text", [" ", "\t"])
async def test_blanks_are_a_text_where_they_are_tokens(
    service: httpx.AsyncClient, text: str
) -> None:
    tokenized = await service.post("/tokenize", json={"inputs": text})
    embedded = await service.post("/embed", json={"inputs": text})
    assert embedded.status_code == tokenized.status_code
    if embedded.status_code != 200:
        assert embedded.json()["code"] == "empty_text"


@pytest.mark.parametrize("text", ["5.2", "0", "-", "nan"])
async def test_a_text_that_looks_like_something_else_is_a_text(
    service: httpx.AsyncClient, text: str
) -> None:
    (vector,) = await answer_to(service, "/embed", inputs=text)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
