"""The end of a server: nothing that it accepted is lost; and what becomes of one that fails."""

import asyncio
import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import Server, server_process

ROOT = Path(__file__).parents[2]
BODY = b'{"inputs": "to b[MASK]"}'
HEAD = b"POST /fill-mask HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY)


def address(server: Server) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def test_it_answers_until_balancers_know_that_it_ends() -> None:
    with server_process("--drain-delay", "3") as server, httpx.Client(base_url=server.url) as old:
        assert old.get("/readyz").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        while (answer := httpx.get(f"{server.url}/readyz")).status_code == 200:
            pass
        assert answer.json()["code"] == "draining"
        # On a connection from before and on a new one; each is told not to come back.
        for answer in (
            old.post("/fill-mask", content=BODY),
            httpx.post(f"{server.url}/fill-mask", content=BODY),
        ):
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
        assert httpx.get(f"{server.url}/livez").status_code == 200
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - begun >= 3
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/livez")


def test_a_second_signal_cuts_the_delay_short() -> None:
    with server_process("--drain-delay", "30") as server:
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.url}/readyz").status_code == 200:
            pass
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - begun < 5


def test_a_request_that_is_half_sent_at_the_end_is_answered() -> None:
    with server_process() as server, socket.create_connection(address(server)) as client:
        client.sendall(HEAD + BODY[:5])
        assert httpx.get(f"{server.url}/livez").status_code == 200  # it has read the half
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(timeout=0.5)
        client.sendall(BODY[5:])
        answer = client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in answer
        assert server.process.wait(timeout=10) == 0


def test_what_was_sent_before_the_end_on_many_connections_is_answered() -> None:
    with server_process() as server:
        clients = [socket.create_connection(address(server)) for _ in range(200)]
        for client in clients:
            client.sendall(HEAD + BODY)
        server.process.send_signal(signal.SIGTERM)  # before most of them were even accepted
        answers = []
        for client in clients:
            with client:
                answers.append(client.recv(65536)[:15])
        assert answers == [b"HTTP/1.1 200 OK"] * 200
        assert server.process.wait(timeout=10) == 0


def test_who_has_connected_before_the_end_and_sends_a_moment_later_is_answered() -> None:
    with server_process() as server, socket.create_connection(address(server)) as client:
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(timeout=0.4)
        client.sendall(HEAD + BODY)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")
        assert server.process.wait(timeout=10) == 0


async def test_what_takes_longer_than_the_drain_is_told_so_and_the_end_says_that_it_was_cut() -> (
    None
):
    with server_process("--drain-seconds", "0", "--threads", "1") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            body = {"inputs": ["to be or not to be, that is"] * 1000, "reduce": "mean", "top_k": 1}
            request = asyncio.ensure_future(client.post("/attention", json=body))
            async with httpx.AsyncClient(base_url=server.url) as other:
                while "maskwright_queue_depth 0.0" in (await other.get("/metrics")).text:
                    assert not request.done(), request.result().text
            server.process.send_signal(signal.SIGTERM)
            answer = await request
        assert answer.status_code == 503
        assert answer.json()["code"] == "draining"
        assert await asyncio.to_thread(server.process.wait, 10) == 1
        assert any("not finished in time" in json.loads(line)["message"] for line in server.lines())


async def test_a_worker_that_dies_is_replaced_and_its_request_told() -> None:
    with server_process(cwd=ROOT, module=("tests.service.faulty",)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            assert (await client.post("/embed", json={"inputs": "die"})).status_code == 500
            for _ in range(4):
                assert (await client.post("/embed", json={"inputs": "fine"})).status_code == 200
            assert (await client.get("/livez")).status_code == 200
        assert await asyncio.to_thread(server.stop) == 0


async def test_a_worker_that_hangs_ends_the_process_once_everyone_is_told() -> None:
    flags = ("--hang-seconds", "1")
    with server_process(*flags, cwd=ROOT, module=("tests.service.faulty",)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            begun = time.monotonic()
            hung = await client.post("/embed", json={"inputs": "hang"})
            assert hung.status_code == 500
            assert await asyncio.to_thread(server.process.wait, 10) == 1
            assert time.monotonic() - begun < 1 + 5
