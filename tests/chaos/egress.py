"""A network without a way out and a file system that cannot be written: nothing tries either."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chaos.figures import Figure, at_least, at_most

ROOT = Path(__file__).parents[2]
TRACED = "connect,sendto,openat,open,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat"
# Asks one of each, from within, and ends the server.
VISIT = """
import http.client, json, os, re, signal, subprocess, sys
command = [sys.executable, "-B", "-m", "service.cli", "--port", "0", "--drain-delay", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
try:
    port = int(re.search(r":(\\d+)$", server.stdout.readline()).group(1))
    body = json.dumps({"inputs": "to b[MASK]"})
    for path in ("/fill-mask", "/embed", "/attention", "/readyz", "/metrics", "/info"):
        client = http.client.HTTPConnection("127.0.0.1", port)
        client.request("POST" if path[1] in "fea" else "GET", path, body)
        print(client.getresponse().status)
    server.send_signal(signal.SIGTERM)
    print(server.wait(20))
finally:
    server.kill()
"""


def egress(*, full: bool) -> list[Figure]:
    name = "no network, read-only file system"
    tools = {tool: shutil.which(tool) for tool in ("bwrap", "strace")}
    if missing := [tool for tool, path in tools.items() if path is None]:
        return [Figure(name, "not run", f"{', '.join(missing)} not installed", "", not full)]
    with tempfile.TemporaryDirectory() as out:
        trace = Path(out) / "trace"
        ended = subprocess.run(
            [
                "strace", "-f", "-qq", "-e", f"trace={TRACED}", "-o", str(trace),
                "bwrap", "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev",
                "--proc", "/proc", "--chdir", str(ROOT), "--die-with-parent",
                sys.executable, "-B", "-c", VISIT,
            ],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        lines = trace.read_text().splitlines()
    good = ended.stdout.split() == ["200"] * 6 + ["0"]
    return [
        at_least(name, f"answers as ever ({ended.stderr[-200:]!r})" if not good else
                 "answers as ever, and the end is clean", float(good), 1),
        at_most(name, "connections out that were tried", len(_outward(lines)), 0),
        at_most(name, f"files that were to be written {_written(lines)[:3]}",
                len(_written(lines)), 0),
    ]  # fmt: skip


def _outward(lines: list[str]) -> list[str]:
    """Connections to anything but the visitor's own server."""
    to = [line for line in lines if re.search(r"connect\(|sendto\(.*sin_addr", line)]
    return [line for line in to if not re.search(r'inet_addr\("127\.0\.0\.1"\)|AF_NETLINK', line)]


def _written(lines: list[str]) -> list[str]:
    """Files that were opened to be written, made, moved or removed; devices are none."""
    after = False
    found = []
    for line in lines:
        after = after or "service" in line  # before it, bwrap builds the sandbox
        if not after or '"/dev/' in line or '"/proc/' in line:
            continue
        opened = re.search(r"open(at)?\(.*(O_WRONLY|O_RDWR|O_CREAT)", line)
        changed = re.search(r"\b(creat|mkdir|mkdirat|unlink|unlinkat|rename|renameat)\(", line)
        if opened or changed:
            found.append(line)
    return found
