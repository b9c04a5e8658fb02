"""The proxy that ships, over two real replicas: what breaks one of them reaches no client."""

import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx

from deploy.checks.parts import DEPLOY, free_port, process, service

BODY = {"inputs": "to be or not to be"}


def nginx_configuration(directory: Path, *, ports: list[int], listen: int = 8443) -> Path:
    """The configuration that ships, but for the addresses of the replicas and the certificate."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.crt"]
    subprocess.run(command, check=True, capture_output=True, cwd=directory)
    servers = " ".join(f"server 127.0.0.1:{port} max_fails=1 fail_timeout=2s;" for port in ports)
    (directory / "upstream.conf").write_text(
        f"upstream maskwright {{ zone maskwright 128k; least_conn; {servers} keepalive 64; }}\n"
    )
    text = (DEPLOY / "nginx" / "nginx.conf").read_text()
    text = text.replace("/tmp/", f"{directory}/").replace("/etc/nginx/tls/", f"{directory}/")
    text = text.replace("8443", str(listen)).replace("/dev/stdout", f"{directory}/access.log")
    (directory / "nginx.conf").write_text(text)
    return directory / "nginx.conf"


@contextlib.contextmanager
def edge(directory: Path, *, ports: list[int]) -> Iterator[int]:
    """The port of the proxy over replicas; it takes what one address sends, however much."""
    listen = free_port()
    configuration = nginx_configuration(directory, ports=ports, listen=listen)
    limitless = re.sub(r"limit_(req|conn) (zone|conn)", r"# \g<0>", configuration.read_text())
    configuration.write_text(limitless)
    user = "" if os.getuid() else "user root;"
    command = ("nginx", "-c", configuration, "-g", f"daemon off; {user}")
    with process(*command, log=directory / "nginx.log"):
        yield listen


def test_a_replica_that_is_killed_and_a_rolling_restart_cost_no_client_an_error(
    tmp_path: Path,
) -> None:
    ports = [free_port(), free_port()]
    answers: Counter[int] = Counter()

    def replica(number: int) -> object:
        return service("--threads", "1", port=ports[number], log=tmp_path / f"{number}.log")

    async def load_and_break(url: str) -> None:
        over = asyncio.Event()

        async def one(client: httpx.AsyncClient) -> None:
            while not over.is_set():
                answers[(await client.post(f"{url}/embed", json=BODY)).status_code] += 1

        async with httpx.AsyncClient(verify=False, timeout=30, trust_env=False) as client:
            load = [asyncio.ensure_future(one(client)) for _ in range(16)]
            await asyncio.sleep(2)
            first.send_signal(signal.SIGKILL)
            await asyncio.sleep(3)
            with_first = replica(0)
            await asyncio.to_thread(with_first.__enter__)
            await asyncio.sleep(3)
            # A rolling restart: the second goes by SIGTERM, comes back, then the first.
            for number, old in ((1, with_second), (0, with_first)):
                await asyncio.to_thread(old.__exit__, None, None, None)
                new = replica(number)
                await asyncio.to_thread(new.__enter__)
                started.append(new)
                await asyncio.sleep(3)
            over.set()
            await asyncio.gather(*load)

    started: list[object] = []
    with_first, with_second = replica(0), replica(1)
    first = with_first.__enter__()
    with_second.__enter__()
    with edge(tmp_path, ports=ports) as listen:
        url = f"https://127.0.0.1:{listen}"
        try:
            asyncio.run(load_and_break(url))
            check_the_door(url, tmp_path)
        finally:
            for context in started:
                context.__exit__(None, None, None)
    print(f"\n{sum(answers.values())} requests: {dict(answers)}")
    assert set(answers) == {200}
    assert answers[200] > 100


def check_the_door(url: str, directory: Path) -> None:
    """What strangers must not reach, and what is too much."""
    verify = ssl.create_default_context(cafile=directory / "tls.crt")
    verify.check_hostname = False
    with httpx.Client(base_url=url, verify=verify, trust_env=False) as client:
        for path in ("/metrics", "/docs", "/openapi.json", "/admin/reload"):
            assert client.get(path).status_code == 404
        assert client.get("/readyz").status_code == 200
        large = client.post("/embed", content=b"x" * (2 << 20))
        assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
        long_header = client.get("/readyz", headers={"x-long": "x" * 20_000})
        assert long_header.status_code in (400, 431)
    lines = (directory / "access.log").read_text().splitlines()
    assert all(json.loads(line)["status"] for line in lines)
    assert "to be" not in (directory / "access.log").read_text()
