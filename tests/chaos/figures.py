"""What a check found, beside what it must find."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass(frozen=True)
class Figure:
    """One line of the report; `ok` is None for a figure without a bar."""

    check: str
    what: str
    found: str
    bar: str = ""
    ok: bool | None = None


def at_most(check: str, what: str, found: float, bar: float, unit: str = "") -> Figure:
    return Figure(check, what, f"{found:.6g}{unit}", f"<= {bar:g}{unit}", found <= bar)


def at_least(check: str, what: str, found: float, bar: float, unit: str = "") -> Figure:
    return Figure(check, what, f"{found:.6g}{unit}", f">= {bar:g}{unit}", found >= bar)


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def n_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def n_threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def metric(url: str, name: str) -> float:
    """The sum of a metric's series."""
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(rf"(?m)^maskwright_{name}(?:{{.*}})? (\S+)$", text)
    return sum(map(float, found))


def settled(read: Callable[[], float], wanted: float, *, seconds: float = 10) -> float:
    """What is read, once it is what is wanted or time is up."""
    import time

    begun = time.monotonic()
    while (value := read()) > wanted and time.monotonic() - begun < seconds:
        time.sleep(0.1)
    return value
