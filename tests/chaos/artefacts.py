"""Models that are replaced, and models that were damaged."""

import asyncio
import random
import shutil
import statistics
import tempfile
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray

from export.artefact import MANIFEST, InvalidArtefact, load_artefact
from service.models import BUNDLED
from tests.chaos.client import Client, post
from tests.chaos.figures import Figure, at_least, at_most, rss_mib
from tests.chaos.servers import server_process
from tests.service.test_reload import NAMES, TEXTS, Deployment


def reloads(*, full: bool) -> list[Figure]:
    """Two models in turn under one name, while clients ask: each answer is of one of them."""
    n = 50 if full else 16
    with tempfile.TemporaryDirectory() as root:
        deployment = Deployment(Path(root))
        with server_process(*deployment.flags) as server:
            pid, most = server.process.pid, 2.5 if full else 5.0  # medians of few move more
            found = asyncio.run(_reloads(deployment, server.url, pid, n, most))
            server.stop()
    return found


async def _reloads(deployment: Deployment, url: str, pid: int, n: int, most: float) -> list[Figure]:
    client, request = Client(int(url.rpartition(":")[2])), post("/embed", {"inputs": TEXTS})
    references: list[NDArray[np.float32]] = []
    n_bad = 0

    async def reload(number: int) -> None:
        nonlocal n_bad
        deployment.put(NAMES[number % 2])
        n_bad += (await asyncio.to_thread(deployment.reload)).status_code != 200

    for number in (1, 0):
        await reload(number)
        references.append(_vectors((await client.ask(request)).body))
    seen, mixed, stopping = [0, 0], 0, asyncio.Event()
    failures: list[int | None] = []

    async def ask() -> None:
        nonlocal mixed
        while not stopping.is_set():
            reply = await client.ask(request)
            if reply.status != 200:
                failures.append(reply.status)
                continue
            vectors = _vectors(reply.body)
            of = [i for i in (0, 1) if np.abs(vectors - references[i]).max() < 1e-5]
            mixed += len(of) != 1
            for i in of:
                seen[i] += 1

    asking = [asyncio.ensure_future(ask()) for _ in range(8)]
    # One reading says little: it moves by a twentieth with what the clients have under way. So
    # the halves are compared by their medians, once memory has met both models a few times.
    for number in range(6):
        await reload(number)
    memory: list[float] = []
    for number in range(n):
        await reload(number)
        memory.append(rss_mib(pid))
    before, after = statistics.median(memory[: n // 2]), statistics.median(memory[n // 2 :])
    grown = 100 * (after / before - 1)
    stopping.set()
    await asyncio.gather(*asking)
    name = f"{n} reloads under load"
    return [
        at_most(name, "reloads refused", n_bad, 0),
        at_most(name, "requests that failed", len(failures) - failures.count(429), 0),
        Figure(name, "refused with 429, as too much waited", str(failures.count(429))),
        at_most(name, f"answers of no one model (of {sum(seen)})", mixed, 0),
        at_least(name, "answers of the rarer model", min(seen), 1),
        at_most(name, "growth of memory from half to half", grown, most, " %"),
    ]


def _vectors(body: bytes) -> NDArray[np.float32]:
    return np.array(httpx.Response(200, content=body).json(), np.float32)


def damaged(*, full: bool) -> list[Figure]:
    """One bit flipped at random places of each file; truncated, empty, linked."""
    n = 200 if full else 20
    chosen, accepted, tried, harmless = random.Random(0), [], 0, 0
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "artefact"
        shutil.copytree(BUNDLED / NAMES[0], directory)
        whole = load_artefact(directory).manifest
        for path in sorted(directory.iterdir()):
            data = path.read_bytes()
            spoilt = [data[:-1], b"", data[: len(data) // 2], data + b"\n"]
            for _ in range(n):
                offset = chosen.randrange(len(data))
                flipped = bytes([data[offset] ^ 1 << chosen.randrange(8)])
                spoilt.append(data[:offset] + flipped + data[offset + 1 :])
            for bad in spoilt:
                path.write_bytes(bad)
                tried += 1
                try:
                    loaded = load_artefact(directory)
                except InvalidArtefact:
                    continue
                # A space more, or 1E-05 for 1e-05: the manifest says the same.
                same = path.name == MANIFEST and loaded.manifest == whole
                harmless += same
                if not same:
                    accepted.append(path.name)
            path.write_bytes(data)
            for link in (Path(root) / "other",):
                shutil.move(path, link)
                path.symlink_to(link)
                accepted += _loads(directory, path)
                path.unlink()
                path.hardlink_to(link)
                accepted += _loads(directory, path)
                path.unlink()
                shutil.move(link, path)
                tried += 2
    name = f"{tried} damaged artefacts"
    return [
        at_most(name, "taken", len(accepted), 0),
        Figure(name, "manifests that say the same in other bytes", str(harmless)),
    ]


def _loads(directory: Path, path: Path) -> list[str]:
    try:
        load_artefact(directory)
    except InvalidArtefact:
        return []
    return [path.name]
