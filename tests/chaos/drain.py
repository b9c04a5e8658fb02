"""SIGTERM under load, and a rolling restart behind a balancer: nothing accepted is lost."""

import asyncio
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.chaos.client import Client, Reply, closed_loop, get
from tests.chaos.figures import Figure, at_least, at_most
from tests.chaos.servers import server_process
from tests.chaos.texts import forever, mixed, pieces
from tests.service.conftest import Server

NGINX = """
daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;
  fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  upstream replicas {{
    server 127.0.0.1:{first} max_fails=1 fail_timeout=1s;
    server 127.0.0.1:{second} max_fails=1 fail_timeout=1s;
    keepalive 32;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://replicas; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_next_upstream error timeout;
    }}
  }}
}}
"""


def sigterm(*, full: bool) -> list[Figure]:
    """SIGTERM, again and again, while 8 to 64 connections send."""
    n_rounds = 20 if full else 3
    replies: list[Reply] = []
    statuses: list[int] = []
    for number in range(n_rounds):
        n_connections = random.Random(number).randint(8, 64)
        with server_process("--drain-delay", "0.3") as server:
            replies += asyncio.run(_until_it_ends(server, n_connections))
            statuses.append(server.process.wait(timeout=30))
    answered = sum(reply.status == 200 for reply in replies)
    other = sum(reply.status not in (200, 429, None) for reply in replies)
    name = f"SIGTERM under load, {n_rounds} times"
    return [
        at_least(name, "requests answered", answered, 100),
        at_most(name, "requests sent and not answered", sum(r.lost for r in replies), 0),
        at_most(name, "answers other than 200 and 429", other, 0),
        at_most(name, "exits other than 0", sum(status != 0 for status in statuses), 0),
    ]


async def _until_it_ends(server: Server, n_connections: int) -> list[Reply]:
    client = Client(int(server.url.rpartition(":")[2]))
    requests = forever(mixed(pieces(60, longest=50)))
    loading = asyncio.ensure_future(
        closed_loop(
            client,
            requests,
            n_connections=n_connections,
            until=lambda: server.process.poll() is not None,
        )
    )
    await asyncio.sleep(0.7)
    server.process.send_signal(signal.SIGTERM)
    return await loading


def rolling(*, full: bool) -> list[Figure]:
    """Two replicas behind nginx, each stopped and started anew while clients send."""
    name = "rolling restart of two replicas behind nginx"
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if nginx is None:
        return [Figure(name, "not run", "nginx is not installed", "", not full)]
    with tempfile.TemporaryDirectory() as root:
        ports = _free_ports(3)
        first, second, port = ports
        config = Path(root) / "nginx.conf"
        config.write_text(NGINX.format(root=root, first=first, second=second, port=port))
        proxy = subprocess.Popen([nginx, "-c", str(config), "-p", root])
        try:
            replies, statuses = asyncio.run(_restart_each(first, second, port, 3 if full else 1))
        finally:
            proxy.terminate()
            proxy.wait(timeout=10)
    bad = [reply.status for reply in replies if reply.status != 200]
    return [
        at_least(name, "requests answered", len(replies) - len(bad), 100),
        at_most(name, "client errors", len(bad), 0),
        at_most(name, "exits other than 0", sum(status != 0 for status in statuses), 0),
    ]


async def _restart_each(
    first: int, second: int, port: int, n_rounds: int
) -> tuple[list[Reply], list[int]]:
    def start(at: int) -> "tuple[object, Server]":
        context = server_process("--port", str(at), "--drain-delay", "2", "--threads", "1")
        return context, context.__enter__()

    running = {at: await asyncio.to_thread(start, at) for at in (first, second)}
    client, stopping, statuses = Client(port), asyncio.Event(), []
    for _ in range(200):
        if (await client.ask(get("/readyz"))).status == 200:
            break
        await asyncio.sleep(0.05)  # nginx starts
    loading = asyncio.ensure_future(
        closed_loop(
            client,
            forever(mixed(pieces(60, longest=50))),
            n_connections=8,
            until=stopping.is_set,
        )
    )
    for _ in range(n_rounds):
        for at in (first, second):
            context, server = running[at]
            statuses.append(await asyncio.to_thread(server.stop))
            context.__exit__(None, None, None)
            running[at] = await asyncio.to_thread(start, at)
            await asyncio.sleep(1.5)  # nginx tries it again after its fail_timeout
    stopping.set()
    replies = await loading
    for context, server in running.values():
        statuses.append(await asyncio.to_thread(server.stop))
        context.__exit__(None, None, None)
    return replies, statuses


def _free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    time.sleep(0)
    return ports
