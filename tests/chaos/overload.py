"""Two, five and ten times what the service can do, from a process of its own."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos.client import percentile
from tests.chaos.figures import Figure, at_least, at_most
from tests.chaos.heavy import MAX_TOKENS, build
from tests.chaos.servers import server_process
from tests.chaos.texts import pieces
from tests.service.conftest import Server

GOODPUT = {2: 0.95, 5: 0.90, 10: 0.85}
REFUSALS_MS = {2: 10.0, 5: 50.0, 10: 50.0}


def overload(*, full: bool) -> list[Figure]:
    seconds = 30 if full else 8
    factors = (2, 5, 10) if full else (5,)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as root:
        build(Path(root) / "heavy")
        bodies = Path(root) / "bodies.json"
        texts = pieces(20, longest=4 * MAX_TOKENS, seed=1)
        long = [{"inputs": (text * MAX_TOKENS)[: 2 * MAX_TOKENS]} for text in texts]
        bodies.write_text(json.dumps(long))
        with server_process("--model", f"{root}/heavy", "--log-format", "json") as server:
            _send(server, 0, 3, bodies)
            before = _peak(server, bodies)
            for factor in factors:
                found = _at(server, factor, before, seconds, bodies)
                after = _peak(server, bodies)
                figures += _judged(factor, *found, peak=(before + after) / 2)
                before = after
            server.stop()
    return figures


def _peak(server: Server, bodies: Path) -> float:
    """Answers a second when as many are asked for as are given."""
    return _goodput(_send(server, 0, 10, bodies), 10)


def _at(
    server: Server, factor: int, peak: float, seconds: float, bodies: Path
) -> tuple[list[list[Any]], float, list[float], float]:
    """What became of the load; its goodput; milliseconds of refusals; how it was after it."""
    usual, begun = _p99(_send(server, peak / 2, 5, bodies)), len(server.lines())
    replies = _send(server, factor * peak, seconds, bodies)
    ended = len(server.lines())
    time.sleep(1.5)  # of the bar's two seconds, less what the sender takes to start
    slower = _p99(_send(server, peak / 2, 5, bodies)) / usual
    refused = [
        float(line["total_ms"])
        for line in map(json.loads, server.lines()[begun:ended])
        if line.get("status") in (429, 503)
    ]
    return replies, _goodput(replies, seconds), refused, slower


def _judged(
    factor: int,
    replies: list[list[Any]],
    goodput: float,
    refused: list[float],
    slower: float,
    *,
    peak: float,
) -> list[Figure]:
    name = f"{factor} x peak"
    statuses = sorted({str(status) for status, _, _ in replies})
    others = sum(status not in (200, 429, 503) for status, _, _ in replies)
    answered = [taken for status, taken, _ in replies if status == 200]
    return [
        Figure(name, "peak, mean of before and after", f"{peak:.1f} requests/s"),
        at_least(name, "goodput over peak", goodput / peak, GOODPUT[factor]),
        at_most(name, f"not 200, 429 or 503 (of {', '.join(statuses)})", others, 0),
        at_most(name, "p99 of refusals, in the server", percentile(refused, 0.99),
                REFUSALS_MS[factor], " ms"),
        Figure(name, "p99 of answers", f"{percentile(answered, 0.99):.2f} s"),
        at_most(name, "p99 two seconds later, over the usual", slower, 1.5),
    ]  # fmt: skip


def _send(server: Server, rate: float, seconds: float, bodies: Path) -> list[list[Any]]:
    port = server.url.rpartition(":")[2]
    command = [sys.executable, "-m", "tests.chaos.load", port, str(rate), str(seconds), str(bodies)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[list[Any]] = json.loads(ended.stdout)
    return found


def _goodput(replies: list[list[Any]], seconds: float) -> float:
    """Answers a second; those that came after the load's end took longer than it."""
    longest = max((taken for status, taken, _ in replies if status == 200), default=0.0)
    return sum(status == 200 for status, _, _ in replies) / (seconds + min(longest, 1.0))


def _p99(replies: list[list[Any]]) -> float:
    return percentile([taken for status, taken, _ in replies if status == 200], 0.99)
