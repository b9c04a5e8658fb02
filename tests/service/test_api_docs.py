"""docs/api.md: what it sends is answered as it says, and its lists are those of the code."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import errors
from service.errors import ServiceError
from tests.service.conftest import Server

DOCUMENT = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")
REST = "…"
GROUPS = {
    "open": errors.OPEN,
    "any": errors.ANY,
    "of a body": errors.WITH_BODY,
    "common": errors.COMMON,
}
BLOCK = re.compile(r"```(bash|json|python)(?: (\d+))?\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A request of the document and the answer it is said to have."""

    command: str
    status: int
    answer: Any


def parsed(text: str) -> Any:
    """The JSON of an example, its numbers as they are written and `…` as a text or a field."""

    def quoted(found: re.Match[str]) -> str:
        if found.group() != REST:
            return found.group()
        before, after = text[: found.start()].rstrip()[-1:], text[found.end() :].lstrip()[:1]
        return '"…": "…"' if before in ",{" and after == "}" else '"…"'

    whole = re.sub(r'"(?:[^"\\]|\\.)*"|…', quoted, text)
    return json.loads(whole, parse_float=Decimal)


def examples() -> list[Example]:
    found, blocks = [], BLOCK.findall(DOCUMENT)
    for number, (kind, _, text) in enumerate(blocks):
        if kind == "bash":
            following = blocks[number + 1]
            has_answer = following[0] == "json"
            status = int(following[1] or 200) if has_answer else 200
            answer = parsed(following[2]) if has_answer else REST
            found.append(Example(text.strip(), status, answer))
    return found


def differs(said: Any, found: Any, at: str = "answer") -> str | None:
    """Where an answer is not as the document says; None if it is."""
    if said == REST:
        return None
    if isinstance(said, dict) and isinstance(found, dict):
        missing = said.keys() - found.keys() - {REST}
        further = found.keys() - said.keys() if REST not in said else set()
        if missing or further:
            return f"{at}: lacks {missing}, has {further}"
        pairs = [(f"{at}.{key}", said[key], found[key]) for key in said if key != REST]
    elif isinstance(said, list) and isinstance(found, list):
        some = said[:-1] if said[-1:] == [REST] else said
        if len(found) < len(some) or (some is said and len(found) > len(some)):
            return f"{at}: {len(found)} elements"
        pairs = [(f"{at}[{i}]", *pair) for i, pair in enumerate(zip(some, found, strict=False))]
    elif isinstance(said, Decimal):
        last_place = Decimal(1).scaleb(int(said.as_tuple().exponent))
        close = isinstance(found, int | float) and abs(Decimal(found) - said) <= last_place
        return None if close else f"{at}: {found}, not {said}"
    elif isinstance(said, str) and REST in said:
        pattern = ".*".join(map(re.escape, said.split(REST)))
        return None if re.fullmatch(pattern, str(found)) else f"{at}: {found!r}, not {said!r}"
    else:
        return None if said == found else f"{at}: {found!r}, not {said!r}"
    return next((problem for w, s, f in pairs if (problem := differs(s, f, w))), None)


def here(text: str, server: Server) -> str:
    return text.replace("localhost:8000", server.url.removeprefix("http://"))


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.command[5:60])
def test_a_request_is_answered_as_the_document_says(
    bundled_server: Server, example: Example, tmp_path: Path
) -> None:
    ended = subprocess.run(
        ["bash", "-c", here(example.command, bundled_server) + " -s -w '\n%{http_code}'"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,  # some keep what they get
        env={**os.environ, "no_proxy": "*"},
    )
    body, _, status = ended.stdout.rpartition("\n")
    assert int(status) == example.status, body
    if example.answer != REST:
        assert differs(example.answer, json.loads(body)) is None
    for kept in tmp_path.iterdir():
        assert kept.stat().st_size > 1000


def test_a_wrong_answer_would_be_seen() -> None:
    said = parsed('{"a": [0.83, …], "b": "x…", …}')
    assert differs(said, {"a": [0.8318, 1], "b": "xyz", "c": 0}) is None
    assert differs(said, {"a": [0.85], "b": "xyz"}) == "answer.a[0]: 0.85, not 0.83"
    assert differs(said, {"a": [], "b": "xyz"}) == "answer.a: 0 elements"
    assert differs(said, {"a": [0.83], "b": "yz"}) is not None
    assert differs(said, {"a": [0.83]}) is not None
    assert differs(parsed('{"a": …}'), {"a": 1, "b": 2}) is not None


def sections() -> dict[str, str]:
    """The text below each endpoint's heading."""
    parts = re.split(r"^###? (.*)$", DOCUMENT, flags=re.MULTILINE)
    return {
        heading.strip("`"): text
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
        if heading.startswith("`")
    }


@pytest.fixture(scope="module")
def documented(bundled_server: Server) -> dict[str, set[str]]:
    """The codes of failures in the OpenAPI document, by endpoint."""
    paths = httpx.get(f"{bundled_server.url}/openapi.json").json()["paths"]
    return {
        f"{method.upper()} {path}": {
            code
            for answer in operation["responses"].values()
            for code in re.findall(r"`([a-z_]+)`: ", answer["description"])
        }
        for path, operations in paths.items()
        for method, operation in operations.items()
    }


def test_every_endpoint_has_its_section_with_a_request(documented: dict[str, set[str]]) -> None:
    assert sections().keys() == documented.keys()
    assert all("```bash\ncurl " in text for text in sections().values())


@pytest.mark.parametrize("endpoint", sections())
def test_the_errors_of_an_endpoint_are_those_of_the_openapi_document(
    documented: dict[str, set[str]], endpoint: str
) -> None:
    (line,) = re.findall(r"^Errors: (.*)\.$", sections()[endpoint], re.MULTILINE)
    (group,) = re.findall(r"\[([a-z ]+)\]\(#failures\)", line)
    listed = {error.code for error in GROUPS[group]} | set(re.findall(r"`([a-z_]+)`", line))
    assert listed == documented[endpoint]


def test_the_table_of_failures_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \| .* \| (.*?) ?\|$", DOCUMENT, re.MULTILINE)
    listed = {
        (int(status), code): group
        for status, codes, group in rows
        for code in re.findall(r"`([a-z_]+)`", codes)
    }
    assert listed.keys() == {(e.status, e.code) for e in ServiceError.__subclasses__()}
    smallest = {
        (error.status, error.code): name
        for name, classes in reversed(GROUPS.items())
        for error in classes
    }
    assert {key: group for key, group in listed.items() if group} == smallest


def python_blocks() -> list[str]:
    return [text for kind, _, text in BLOCK.findall(DOCUMENT) if kind == "python"]


@pytest.mark.parametrize("package", ["huggingface_hub", "openai"])
def test_what_is_said_of_a_client_runs(bundled_server: Server, package: str) -> None:
    (block,) = [text for text in python_blocks() if f"from {package} import" in text]
    exec(here(block, bundled_server), {})  # the document's own lines
