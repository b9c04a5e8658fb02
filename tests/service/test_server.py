"""The server process: its start, its end, and its answers under load."""

import asyncio
import json
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.conftest import Server, server_process

WORDS = ("To", "be", "or", "not", "to", "be", "that", "is", "the", "question", "nobler", "mind")


@pytest.fixture(scope="module", params=["mhsa", "mlp_mixer"])
def server(
    request: pytest.FixtureRequest, artefact_of: Callable[..., Path], tmp_path_factory: Any
) -> Iterator[Server]:
    """A server of each mixer, in a directory of its own, as an installed one would run."""
    artefact = artefact_of(request.param)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with server_process("--model", str(artefact), cwd=elsewhere) as server:
        yield server


def mixed_texts(n: int, *, seed: int) -> list[str]:
    """Texts of 3 to 31 tokens, one mask each, no two alike."""
    chosen = random.Random(seed)
    texts = []
    for number in range(n):
        text = " ".join(chosen.choices(WORDS, k=chosen.randint(1, 8)))[: chosen.randint(1, 27)]
        at = chosen.randrange(len(text) + 1)
        texts.append(f"{text[:at]}[MASK]{text[at:]}{number}")
    return texts


async def ask(client: httpx.AsyncClient, route: str, text: str) -> Any:
    answer = await client.post(route, json={"inputs": text})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def all_at_once(url: str, route: str, texts: list[str], *, connections: int) -> list[Any]:
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
        return await asyncio.gather(*(ask(client, route, text) for text in texts))


async def one_by_one(url: str, route: str, texts: list[str]) -> list[Any]:
    async with httpx.AsyncClient(base_url=url) as client:
        return [await ask(client, route, text) for text in texts]


def assert_same_candidates(alone: list[Any], together: list[Any]) -> None:
    """Scores within 1e-5, and the same tokens but for candidates that close."""
    first = {candidate["token"]: candidate["score"] for candidate in alone}
    second = {candidate["token"]: candidate["score"] for candidate in together}
    for token in first.keys() & second.keys():
        assert abs(first[token] - second[token]) <= 1e-5
    for token in first.keys() ^ second.keys():
        score = first.get(token, second.get(token))
        assert abs(score - min(first.values())) <= 1e-5


async def test_a_texts_answer_does_not_depend_on_what_is_sent_beside_it(server: Server) -> None:
    texts = mixed_texts(80, seed=1)
    for route in ("/embed", "/attention", "/fill-mask"):
        alone = await one_by_one(server.url, route, texts)
        together = await all_at_once(server.url, route, texts, connections=64)
        for one, other in zip(alone, together, strict=True):
            if route == "/fill-mask":
                assert_same_candidates(one, other)
            else:
                left = np.array(one["weights"] if route == "/attention" else one)
                right = np.array(other["weights"] if route == "/attention" else other)
                assert np.abs(left - right).max() <= 1e-5 * max(1, np.abs(left).max())


async def test_a_burst_loses_nothing_and_the_counters_equal_the_clients(server: Server) -> None:
    def counters() -> dict[str, float]:
        samples = {}
        for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text):
            for sample in family.samples:
                labels = {k: v for k, v in sample.labels.items() if k != "model"}
                samples[f"{sample.name}{sorted(labels.values())}"] = sample.value
        return samples

    texts, before = mixed_texts(200, seed=2), counters()
    answers = await all_at_once(server.url, "/fill-mask", texts, connections=64)
    assert len(answers) == 200
    for text, candidates in zip(texts, answers, strict=True):
        for candidate in candidates:
            assert candidate["sequence"] == text.replace("[MASK]", candidate["token_str"])
    after = counters()

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("maskwright_http_requests_total['/fill-mask', '2xx', 'POST']") == 200
    assert grown("maskwright_texts_total['fill-mask']") == 200
    assert grown("maskwright_total_seconds_count[]") == 200
    assert grown("maskwright_queue_seconds_count['encode']") == 200
    assert grown("maskwright_batch_items_sum[]") == 200
    n_tokens = sum(len(text) - len("[MASK]") + 1 for text in texts)
    assert grown("maskwright_tokens_total['real']") == n_tokens
    assert after["maskwright_queue_depth[]"] == after["maskwright_queue_cost[]"] == 0
    # The scrape itself is in flight.
    assert after["maskwright_http_requests_in_flight[]"] == 1


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/v2/health/ready", "/info"])
def test_head_is_answered_as_get_without_the_body(bundled_server: Server, path: str) -> None:
    with httpx.Client(base_url=bundled_server.url) as client:
        head = client.head(path)
        got = client.get(path)  # on the same connection: nothing of a body is left on it
    assert (head.status_code, head.content) == (200, b"")
    assert got.status_code == 200
    assert head.headers.get("content-length") == str(len(got.content))


def test_head_of_what_takes_no_get_is_refused_by_its_status_alone(bundled_server: Server) -> None:
    answer = httpx.head(f"{bundled_server.url}/embed")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")


def test_sigterm_ends_a_server_with_zero(artefact: Path) -> None:
    with server_process("--model", str(artefact)) as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        assert server.stop() == 0


async def test_what_was_accepted_before_sigterm_is_answered(artefact: Path) -> None:
    with server_process("--model", str(artefact), "--threads", "1") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            body = {"inputs": mixed_texts(500, seed=3)}
            await client.get("/livez")
            request = asyncio.ensure_future(client.post("/attention", json=body))
            async with httpx.AsyncClient(base_url=server.url) as other:
                for _ in range(1000):  # until it runs
                    metrics = (await other.get("/metrics")).text
                    if "maskwright_queue_depth 0.0" not in metrics or request.done():
                        break
            status = await asyncio.to_thread(server.stop)
            answer = await request
    assert status == 0
    assert answer.status_code == 200
    assert len(answer.json()) == 500


def command(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *flags], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "nowhere"], "neither a directory nor bundled"),
        (["--port", "x"], "port='x'; a number is wanted"),
        (["--device", "tpu"], "one of: auto, cpu, cuda"),
    ],
)
def test_a_start_that_cannot_be_ends_with_one_line(flags: list[str], message: str) -> None:
    ended = command(*flags)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_damaged_artefact_ends_the_start_with_one_line(tmp_path: Path, artefact: Path) -> None:
    for file in artefact.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = bytearray((tmp_path / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(weights)
    ended = command("--model", str(tmp_path))
    assert ended.returncode == 2
    assert "weights.safetensors has sha256" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_port_that_is_taken_ends_the_start_and_says_so(artefact: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = command("--model", str(artefact), "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "address already in use" in ended.stderr


async def test_what_waits_for_a_client_that_left_is_not_computed(artefact: Path) -> None:
    with server_process("--model", str(artefact), "--threads", "1") as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({"inputs": mixed_texts(1000, seed=4)}).encode()
        head = f"POST /attention HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        async with httpx.AsyncClient(base_url=server.url) as watching:

            async def metric(name: str) -> float:
                text = (await watching.get("/metrics")).text
                found = re.findall(rf"^maskwright_{re.escape(name)} (\S+)$", text, re.MULTILINE)
                return float(found[0])

            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + body)
            for _ in range(1000):  # until its texts wait
                if await metric("queue_depth"):
                    break
            writer.close()
            await writer.wait_closed()
            for _ in range(1000):  # until it is noticed
                if await metric('cancelled_total{stage="queued"}'):
                    break
            assert await metric('cancelled_total{stage="queued"}') > 500
            assert await metric("queue_depth") == 0
            answer = await watching.post("/embed", json={"inputs": "a"})
            assert answer.status_code == 200
