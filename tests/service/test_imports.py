"""The service runs where neither torch nor onnx is installed, and reports to no one."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import service

MODULES = sorted(
    ".".join(path.relative_to(Path(service.__file__).parents[1]).with_suffix("").parts)
    for path in Path(service.__file__).parent.rglob("*.py")
)

# What the service shares with training and export; all of it imports no torch.
CONTRACT = {
    "model.tokenizer",
    *("export.arrays", "export.artefact", "export.openvino", "export.references"),
    *("export.widening", "export.wire"),
}

BLOCKED = """
import sys, importlib
for name in ("torch", "onnx", "onnxscript", "jaxtyping", "safetensors"):
    sys.modules[name] = None  # importing it fails
for name in {modules}:
    importlib.import_module(name)
print(sorted(m for m in sys.modules if m.split(".")[0] in ("model", "export")))
"""


def test_every_module_of_the_service_imports_without_torch_and_onnx() -> None:
    assert "service.app" in MODULES
    code = BLOCKED.format(modules=json.dumps(MODULES))
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_the_service_takes_the_contract_modules_only() -> None:
    code = BLOCKED.format(modules=json.dumps(MODULES))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    allowed = sorted({"export", "model", *CONTRACT})
    assert found.stdout.strip() == str(allowed)


def test_ruff_bans_every_other_module_from_the_service() -> None:
    root = Path(service.__file__).parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    banned = set(settings["flake8-tidy-imports"]["banned-api"]) - {"torch", "onnx"}
    others = {
        f"{package}.{path.stem}"
        for package in ("model", "export")
        for path in (root / package).glob("*.py")
        if path.stem != "__init__"
    }
    assert banned == others - CONTRACT


def test_importing_the_service_turns_telemetry_off_before_onnxruntime_is_imported(
    tmp_path: Path,
) -> None:
    code = """
import os, sys
import service
assert "onnxruntime" not in sys.modules
import service.models
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    without = {k: v for k, v in os.environ.items() if k not in ("ORT_DISABLE_TELEMETRY", "CI")}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=without | home
    )
    assert found.stdout.strip() == "1"


def test_a_session_of_ours_writes_no_file_and_opens_no_outward_connection(
    tmp_path: Path, artefact: Path
) -> None:
    """onnxruntime would leave a device id and an events database in the user's cache."""
    code = f"""
import socket, sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise SystemExit(f"outward: {{event}} {{args[1:]}}")
sys.addaudithook(refuse)
from service.models import load_model
load_model({str(artefact)!r}, device="auto")
"""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    without = {k: v for k, v in os.environ.items() if k not in ("ORT_DISABLE_TELEMETRY", "CI")}
    subprocess.run([sys.executable, "-c", code], check=True, env=without | home)
    assert list(tmp_path.rglob("*")) == []
