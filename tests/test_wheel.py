"""The wheel alone, in an empty directory, serves and trains."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.service.conftest import server_process

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds what the wheel holds, and nothing of the repository."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("model", "export", "service"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(source)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (wheel,) = source.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return site


@pytest.fixture
def elsewhere(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory whose Python finds the wheel's packages first."""
    monkeypatch.setenv("PYTHONPATH", str(site))
    where = "import model, export, service; print(model.__file__, service.__file__)"
    command = [sys.executable, "-c", where]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert shown.stdout.count(str(site)) == 2
    return tmp_path


@pytest.mark.slow
def test_the_wheel_serves(elsewhere: Path) -> None:
    with server_process("--model", Settings().model, cwd=elsewhere) as server:
        asked = {"inputs": "The capital of France is [MASK]."}
        answer = httpx.post(f"{server.url}/fill-mask", json=asked)
        assert answer.json()[0]["token_str"] == "paris"
        assert server.stop() == 0
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
def test_the_wheel_trains(elsewhere: Path) -> None:
    command = [sys.executable, "-m", "model.cli", "--preset", "tiny", "--steps", "2"]
    subprocess.run(command, check=True, capture_output=True, cwd=elsewhere, env=os.environ)
    assert (elsewhere / "runs/tiny-mhsa/checkpoint.safetensors").exists()
