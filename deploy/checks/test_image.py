"""The image, built from the real Dockerfile without a container engine, and run as it is meant.

Slow. The base is a small Debian made here, as no registry is asked.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.checks.parts import ROOT, free_port, process

pytestmark = pytest.mark.slow
STORE = ROOT / ".tools" / "containers"
BASE, IMAGE = "localhost/maskwright-base", "localhost/maskwright:check"
CERTIFICATES = Path(os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"))
ASKED = {
    "/fill-mask": {"inputs": "to be or n[MASK]t to be"},
    "/embed": {"inputs": ["to be", "or not"]},
    "/attention": {"inputs": "to be"},
}


def buildah(*arguments: str | Path) -> str:
    command = ["buildah", f"--root={STORE}/store", f"--runroot={STORE}/run"]
    command += ["--storage-driver=vfs", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.strip()


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The file system of the image serve-cpu."""
    base = STORE / "base"
    if not (base / "usr/bin/python").exists():
        shutil.rmtree(base, ignore_errors=True)
        packages = "--include=python3,python3-venv,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(base)]
        subprocess.run(command, check=True, capture_output=True)
        (base / "usr/bin/python").symlink_to("python3")
        made = buildah("from", "scratch")
        buildah("add", made, base, "/")
        buildah("commit", "--rm", made, BASE)
    # Certificates of this host, for its package index; they do not get into the image.
    pip = ("--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--env", f"PIP_CERT={CERTIFICATES}")
    target = ("--target", "serve-cpu", "--build-arg", f"BASE={BASE}", "--tag", IMAGE)
    file = ("--file", "deploy/Dockerfile", ".")
    buildah("bud", "--isolation", "chroot", "--pull-never", *pip, *target, *file)
    container = buildah("from", "--pull-never", IMAGE)
    yield Path(buildah("mount", container))
    buildah("umount", container)
    buildah("rm", container)


def megabytes(path: Path) -> float:
    ended = subprocess.run(["du", "-sb", path], capture_output=True, text=True, check=True)
    return int(ended.stdout.split()[0]) / 1e6


def test_it_holds_what_serving_needs_and_no_more(root: Path) -> None:
    packages = next((root / "venv/lib").glob("python3*")) / "site-packages"
    venv, models = megabytes(root / "venv"), megabytes(packages / "service/bundled")
    print(f"\nvenv {venv - models:.0f} MB, models {models:.0f} MB, all {megabytes(root):.0f} MB")
    assert venv - models <= 400
    assert not (packages / "torch").exists()
    assert not [
        name for name in ("gcc", "cc", "curl", "wget") if (root / "usr/bin" / name).exists()
    ]
    found = subprocess.run(
        ["find", root, "-xdev", "-type", "f", "-perm", "/6000"], capture_output=True, check=True
    )
    assert found.stdout == b""
    bill = json.loads((root / "usr/share/maskwright/sbom.json").read_text())
    assert {"onnxruntime", "fastapi", "numpy"} <= {part["name"] for part in bill["components"]}


def test_it_serves_read_only_as_its_user_without_capabilities(root: Path, tmp_path: Path) -> None:
    config = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    port = free_port()
    environment = dict(pair.split("=", 1) for pair in config["Env"])
    environment |= {"MASKWRIGHT_PORT": str(port), "MASKWRIGHT_HOST": "127.0.0.1"}
    assert config["User"] == "10001"
    assert config["Labels"]["org.opencontainers.image.title"] == "Maskwright"
    variables = [part for pair in environment.items() for part in ("--setenv", *pair)]
    sandbox = (
        *("bwrap", "--ro-bind", root, "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"),
        *("--unshare-user", "--unshare-pid", "--uid", "10001", "--gid", "10001"),
        *("--cap-drop", "ALL", "--die-with-parent", "--clearenv", *variables),
    )
    status = subprocess.run(
        [*map(str, sandbox), "sh", "-c", "cat /proc/self/status; id -u; touch /x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "CapEff:\t0000000000000000" in status.stdout
    assert "NoNewPrivs:\t1" in status.stdout
    assert status.stdout.endswith("\n10001\n")
    assert "Read-only file system" in status.stderr
    url, log = f"http://127.0.0.1:{port}", tmp_path / "log"
    command = (*sandbox, *config["Entrypoint"])
    with process(*command, log=log, ready=f"{url}/readyz") as started:
        for route, body in ASKED.items():
            answer = httpx.post(url + route, json=body, trust_env=False)
            assert answer.status_code == 200, answer.text
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        inside = Path(f"/proc/{children[0]}/task/{children[0]}/children").read_text().split()
        os.kill(int((inside or children)[0]), 15)
        assert started.wait(timeout=40) == 0, log.read_text()
