"""What importing the package does to a process."""

import os
import subprocess
import sys

import pytest


def output_of(program: str) -> str:
    """What a Python program prints in a process without our environment variables."""
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_export_turns_onnx_runtimes_telemetry_off_before_it_is_imported() -> None:
    program = "import os, sys, export; print(os.environ['ORT_DISABLE_TELEMETRY'], *sys.modules)"
    value, *modules = output_of(program).split()
    assert value == "1"
    assert "onnxruntime" not in modules


@pytest.mark.parametrize("module", ["export.artefact", "export.references"])
def test_the_contract_with_the_service_imports_neither_torch_nor_onnx(module: str) -> None:
    modules = output_of(f"import sys, {module}; print(*sys.modules)").split()
    assert module in modules
    assert not {"torch", "onnx", "onnxruntime", "numpy"} & set(modules)
