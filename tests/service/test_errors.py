"""One story for every failure: JSON of one form, never a 500 for bad input, no echo of it."""

import inspect
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from service import errors
from service.app import create_app
from service.errors import ServiceError, documented
from service.models import Model, Work
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running

CLASSES = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, ServiceError) and error is not ServiceError
]
JSON = {"content-type": "application/json"}


@pytest_asyncio.fixture
async def one(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with running(app) as client:
        yield client


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_class_states_its_status_code_and_type(error: type[ServiceError]) -> None:
    assert 400 <= error.status < 600
    assert error.code.replace("_", "").islower()
    assert error.error_type in (
        "Validation", "Empty", "Overloaded", "Unhealthy", "Backend", "Unauthorized", "Timeout",
    )  # fmt: skip
    assert error.__doc__


async def test_every_class_is_in_the_openapi_document(one: httpx.AsyncClient) -> None:
    paths = (await one.get("/openapi.json")).json()["paths"]
    listed = {
        (int(status), code)
        for operations in paths.values()
        for operation in operations.values()
        for status, answer in operation["responses"].items()
        for code in answer.get("content", {})
        .get("application/json", {})
        .get("schema", {})
        .get("properties", {})
        .get("code", {})
        .get("enum", [])
    }
    of_the_framework = {(404, "not_found"), (405, "method_not_allowed")}
    of_the_admin_port = {(403, "forbidden"), (409, "reload_refused")}
    assert listed | of_the_framework | of_the_admin_port == {
        (error.status, error.code) for error in CLASSES
    }


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b"{", 400, "malformed_json"),
        (b'{"inputs": NaN}', 400, "malformed_json"),
        (b'{"inputs": "a", "dimensions": Infinity}', 400, "malformed_json"),
        (b'{"inputs": "\\ud800"}', 400, "malformed_json"),
        (b'{"inputs": "\xff"}', 400, "malformed_json"),
        (b"[" * 100_000, 400, "malformed_json"),
        (b'{"inputs": "a"} trailing', 400, "malformed_json"),
        (b"[1]", 422, "invalid_field"),
        (b"null", 422, "invalid_field"),
        (b'"text"', 422, "invalid_field"),
        (b'{"inputs": "a", "dimensions": ' + b"9" * 5000 + b"}", 400, "malformed_json"),
        (b'{"inputs": "a", "dimensions": 1.5}', 422, "invalid_field"),
        (b'{"inputs": "a", "secret\\nword": 1}', 422, "invalid_field"),
        (b'{"inputs": null}', 422, "invalid_field"),
    ],
)
async def test_garbage_is_a_4xx_of_the_one_form(
    one: httpx.AsyncClient, content: bytes, status: int, code: str
) -> None:
    answer = await one.post("/embed", content=content, headers=JSON)
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code)
    assert set(body) == {"error", "error_type", "code"}
    assert "\n" not in body["error"]
    assert "secret\nword" not in body["error"]


async def test_unusual_but_valid_texts_are_answered(one: httpx.AsyncClient) -> None:
    for text in ("\x00", "\u202e", "e\u0301", "😀" * 100, "\r\n", " ", "\ufeff", "a" * 5000):
        answer = await one.post("/embed", json={"inputs": text})
        assert answer.status_code == 200, (text, answer.text)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/fill-mask/", 404, "not_found"),
        ("GET", "/fill-mask", 405, "method_not_allowed"),
        ("DELETE", "/info", 405, "method_not_allowed"),
    ],
)
async def test_the_frameworks_own_refusals_have_the_same_form(
    one: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await one.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if status == 405:
        assert answer.headers["allow"] == ("GET, HEAD" if path == "/info" else "POST")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "text/plain"},
        JSON | {"content-encoding": "gzip"},
    ],
)
async def test_a_body_of_another_type_or_encoding_is_refused(
    one: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await one.post("/embed", content=b'{"inputs": "a"}', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("inputs", "index"),
    [
        (["a", 5], 1),
        (["a", None], 1),
        ([[5], [6], "a"], 2),
        ([], None),
        ([5, "a"], None),  # ids of one text
        (5, None),
    ],
)
async def test_an_item_of_the_wrong_type_is_named_by_its_index(
    one: httpx.AsyncClient, inputs: Any, index: int | None
) -> None:
    answer = await one.post("/embed", json={"inputs": inputs})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    assert answer.json().get("index") == index


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v1/nothing", {"message", "type", "param", "code"}),
        ("/v2/nothing", None),
        ("/v1embeddings", {"error", "error_type", "code"}),
        ("/v22", {"error", "error_type", "code"}),
    ],
)
async def test_a_path_has_the_form_of_its_protocol(
    one: httpx.AsyncClient, path: str, form: set[str] | None
) -> None:
    body = (await one.get(path)).json()
    nested = isinstance(body["error"], dict)
    assert (set(body["error"]) if nested else set(body)) == (form or {"error"})


async def test_a_body_without_a_content_type_is_read_as_json(one: httpx.AsyncClient) -> None:
    request = one.build_request("POST", "/embed", content=b'{"inputs": "a"}')
    assert "content-type" not in request.headers
    assert (await one.send(request)).status_code == 200


async def test_a_body_over_the_limit_is_refused_announced_or_not(
    model_of: Callable[..., Model],
) -> None:
    app = create_app(Settings(max_body_bytes=100), Registry([model_of()]), n_workers=1)
    big = json.dumps({"inputs": "x" * 100}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 10):
            yield big[start : start + 10]

    async with running(app) as client:
        for content in (big, chunks()):
            answer = await client.post("/embed", content=content, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
            assert "100 bytes" in answer.json()["error"]


class Broken(Model):
    """A loaded model whose graph goes wrong on texts that start with `!`."""

    def __init__(self, model: Model, fault: Callable[[], Any]) -> None:
        self.__dict__ = dict(model.__dict__)
        self._fault = fault

    def run(self, graph: str, payloads: Sequence[Work]) -> Any:
        bad = self.tokenizer.encode("!").ids[0]
        answers = list(super().run(graph, payloads))
        return [
            self._fault() if work.ids[0] == bad else answer
            for work, answer in zip(payloads, answers, strict=True)
        ]


async def test_a_graph_that_fails_on_one_text_fails_only_that_text(
    model_of: Callable[..., Model],
) -> None:
    def fault() -> None:
        raise RuntimeError("the text said: secret")

    app = create_app(Settings(), Registry([Broken(model_of(), fault)]), n_workers=1)
    async with running(app) as client:
        bad = await client.post("/embed", json={"inputs": ["fine", "!bad"]})
        assert (bad.status_code, bad.json()["code"]) == (424, "backend_error")
        assert bad.json()["index"] == 1
        assert "secret" not in bad.text
        assert (await client.post("/embed", json={"inputs": "fine"})).status_code == 200


async def test_an_answer_that_is_not_finite_is_an_error_that_names_the_text(
    model_of: Callable[..., Model],
) -> None:
    app = create_app(Settings(), Registry([Broken(model_of(), errors.NonFinite)]), n_workers=1)
    async with running(app) as client:
        answer = await client.post("/embed", json={"inputs": ["a", "b", "!"]})
        assert (answer.status_code, answer.json()["code"]) == (424, "non_finite")
        assert answer.json()["index"] == 2


async def test_a_fault_of_ours_is_a_500_that_says_nothing_of_the_text(
    model_of: Callable[..., Model],
) -> None:
    class Faulty(Model):
        def __init__(self, model: Model) -> None:
            self.__dict__ = dict(model.__dict__)

        def item(self, graph: str, work: Work) -> Any:
            raise KeyError("secret")

    app = create_app(Settings(), Registry([Faulty(model_of())]), n_workers=1)
    async with running(app) as client:
        answer = await client.post("/embed", json={"inputs": "secret"})
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")
        assert "secret" not in answer.text


async def test_a_full_queue_is_a_429_that_says_when_to_come_back(
    model_of: Callable[..., Model],
) -> None:
    import asyncio
    import threading

    gate = threading.Event()

    class Slow(Model):
        def __init__(self, model: Model) -> None:
            self.__dict__ = dict(model.__dict__)

        def run(self, graph: str, payloads: Sequence[Work]) -> Any:
            assert gate.wait(timeout=10)
            return super().run(graph, payloads)

    app = create_app(Settings(max_queue_cost=8), Registry([Slow(model_of())]), n_workers=1)
    async with running(app) as client:
        waiting = [asyncio.ensure_future(client.post("/embed", json={"inputs": "a"})) for _ in "ab"]
        read = app.state.metrics.registry.get_sample_value
        for _ in range(10_000):  # until one runs and one waits
            if read("maskwright_queue_depth"):
                break
            await asyncio.sleep(0)
        for inputs in ("a", ["a"]):
            answer = await client.post("/embed", json={"inputs": inputs})
            assert (answer.status_code, answer.json()["code"]) == (429, "overloaded")
            assert int(answer.headers["retry-after"]) >= 1
        gate.set()
        answers = await asyncio.gather(*waiting)
        assert [answer.status_code for answer in answers] == [200, 200]
        assert read("maskwright_refused_total", {"reason": "overloaded"}) == 2


def test_documented_errors_group_their_codes_by_status() -> None:
    answers = documented(errors.NoMask, errors.EmptyText)
    assert list(answers) == [400]
    schema = answers[400]["content"]["application/json"]["schema"]
    assert schema["properties"]["code"]["enum"] == ["empty_text", "no_mask"]
