"""Models replaced while they serve: no answer fails, none mixes two, a bad one changes nothing."""

import asyncio
import hashlib
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from service.models import BUNDLED
from tests.service.conftest import Server, server_process

TEXTS = ["to be", "or not to be", "that is the question", "whether 'tis nobler"]
NAMES = ("shakespeare-mhsa", "shakespeare-mlp-mixer")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


class Deployment:
    """A server of the directory `current`, which can be made to be another one."""

    def __init__(self, root: Path) -> None:
        self.root, self.current = root, root / "current"
        self.admin = f"http://127.0.0.1:{free_port()}"
        for name in NAMES:
            shutil.copytree(BUNDLED / name, root / name)
        self.put(NAMES[0])

    def put(self, name: str) -> None:
        """Point `current` at another directory, in one step."""
        link = self.root / "next"
        link.symlink_to(self.root / name)
        link.replace(self.current)

    @property
    def flags(self) -> tuple[str, ...]:
        port = self.admin.rpartition(":")[2]
        return ("--model", f"served={self.current}", "--admin-port", port)

    def reload(self, **options: object) -> httpx.Response:
        return httpx.post(f"{self.admin}/admin/reload", timeout=60, **options)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


@pytest.fixture
def server(deployment: Deployment) -> Iterator[Server]:
    with server_process(*deployment.flags) as server:
        yield server
        assert server.stop() == 0


def embed(url: str) -> NDArray[np.float32]:
    answer = httpx.post(f"{url}/embed", json={"inputs": TEXTS})
    assert answer.status_code == 200
    return np.array(answer.json(), np.float32)


async def test_models_are_swapped_under_load_without_a_failure_or_a_mixture(
    server: Server, deployment: Deployment
) -> None:
    references = {NAMES[0]: embed(server.url)}
    deployment.put(NAMES[1])
    assert deployment.reload().status_code == 200
    references[NAMES[1]] = embed(server.url)
    assert np.abs(references[NAMES[0]] - references[NAMES[1]]).max() > 0.01
    seen, stopping = {name: 0 for name in NAMES}, asyncio.Event()

    async def ask(client: httpx.AsyncClient) -> None:
        while not stopping.is_set():
            answer = await client.post("/embed", json={"inputs": TEXTS})
            assert answer.status_code == 200
            vectors = np.array(answer.json(), np.float32)
            of = [n for n in NAMES if np.abs(vectors - references[n]).max() < 1e-5]
            assert len(of) == 1
            seen[of[0]] += 1

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        asking = [asyncio.ensure_future(ask(client)) for _ in range(4)]
        for number in range(4):
            deployment.put(NAMES[number % 2])
            answer = await asyncio.to_thread(deployment.reload)
            assert answer.status_code == 200, answer.text
        stopping.set()
        await asyncio.gather(*asking)
        text = (await client.get(f"{deployment.admin}/metrics")).text
    assert min(seen.values()) > 0
    assert 'maskwright_reloads_total{outcome="done"} 5.0' in text
    assert text.count("maskwright_model_info{") == 1


async def test_while_a_reload_is_under_way_it_stays_live_and_ready_and_answers(
    server: Server, deployment: Deployment
) -> None:
    reloading = asyncio.ensure_future(asyncio.to_thread(deployment.reload))
    n_asked = 0
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        while not reloading.done():
            answers = [await client.get(path) for path in ("/livez", "/readyz")]
            answers.append(await client.post("/embed", json={"inputs": TEXTS}))
            assert [answer.status_code for answer in answers] == [200, 200, 200]
            n_asked += 1
    assert (await reloading).status_code == 200
    assert n_asked >= 3


def test_a_model_that_is_no_good_is_refused_with_the_reason_and_the_old_one_serves(
    server: Server, deployment: Deployment
) -> None:
    before = embed(server.url)
    bad = deployment.root / "bad"
    for number, file in enumerate(sorted((BUNDLED / NAMES[0]).iterdir())):
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(BUNDLED / NAMES[1], bad)
        data = bytearray((bad / file.name).read_bytes())
        data[len(data) * (number + 1) // 10] ^= 1 << (number % 7)
        (bad / file.name).write_bytes(data)
        deployment.put("bad")
        answer = deployment.reload()
        assert answer.status_code == 409, file.name
        assert answer.json()["code"] == "reload_refused"
    (bad / "README.md").unlink()
    assert "lacks 'README.md'" in deployment.reload().json()["error"]
    assert np.array_equal(embed(server.url), before)
    assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_a_hang_up_signal_reloads_too_and_a_bad_model_does_not_end_the_server(
    server: Server, deployment: Deployment
) -> None:
    def count(outcome: str) -> str:
        lines = httpx.get(f"{deployment.admin}/metrics").text.splitlines()
        return next(line for line in lines if f'reloads_total{{outcome="{outcome}"' in line)[-3:]

    before = embed(server.url)
    for target, outcome in ((NAMES[1], "done"), ("nowhere", "failed")):
        deployment.put(target)
        server.process.send_signal(signal.SIGHUP)
        begun = time.monotonic()
        while count(outcome) != "1.0":
            assert time.monotonic() - begun < 30
    assert np.abs(embed(server.url) - before).max() > 0.01


def test_the_admin_port_has_what_the_public_one_has_not(
    server: Server, deployment: Deployment
) -> None:
    for path, method in (("/metrics", "GET"), ("/admin/reload", "POST")):
        assert httpx.request(method, server.url + path).status_code == 404
    assert "maskwright_ready 1.0" in httpx.get(f"{deployment.admin}/metrics").text
    assert httpx.get(f"{deployment.admin}/livez").status_code == 200
    assert httpx.post(f"{deployment.admin}/embed", json={"inputs": "a"}).status_code == 404
    forged = deployment.reload(headers={"origin": "https://elsewhere.example"})
    assert (forged.status_code, forged.json()["code"]) == (403, "forbidden")


def test_keys_guard_the_reload_and_are_read_anew_with_it(deployment: Deployment) -> None:
    def write(key: str) -> None:
        digest = hashlib.sha256(key.encode()).hexdigest()
        file.write_text(f"{digest} someone\n")

    def bearer(key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    file = deployment.root / "keys"
    write("old")
    with server_process(*deployment.flags, "--api-keys", str(file)) as server:
        assert deployment.reload().status_code == 401
        assert httpx.get(f"{deployment.admin}/metrics").status_code == 200
        write("new")
        assert deployment.reload(headers=bearer("old")).status_code == 200
        for key, status in (("old", 401), ("new", 200)):
            answer = httpx.get(f"{server.url}/info", headers=bearer(key))
            assert answer.status_code == status
        file.write_text("nothing\n")
        assert deployment.reload(headers=bearer("new")).status_code == 409
        assert httpx.get(f"{server.url}/info", headers=bearer("new")).status_code == 200
