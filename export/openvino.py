"""OpenVINO's plugin for ONNX Runtime: bf16 products where the processor has instructions for them.

The package `onnxruntime-ep-openvino` registers itself with the plain onnxruntime. From an fp32
graph it computes in bf16 on AMX; nothing is quantised. Its options lie in `openvino.json`, which
ships: the plugin takes them from a file only. One thread and one stream a session, one session a
worker. Written from measurements on another machine; the plugin offers no device on an AMD CPU.
"""

import importlib
import importlib.util
import platform
from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime as ort

PACKAGE = "onnxruntime_ep_openvino"
OPTIONS = {"load_config": str(Path(__file__).with_name("openvino.json"))}
FLAG = "amx_bf16"


def unusable(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Why the plugin is not taken on this host; None if it is."""
    if not has_bf16(cpuinfo):
        return f"openvino wants a processor with {FLAG}, which this {platform.machine()} lacks"
    if importlib.util.find_spec(PACKAGE) is None:
        return "openvino wants the extra maskwright[openvino], which is not installed"
    return None


def has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor multiplies tiles of bf16."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return False
    lines = (line for line in text.splitlines() if line.startswith("flags"))
    return FLAG in next(lines, "").split()


@cache
def devices() -> list[Any]:
    """The plugin's CPU device, for `SessionOptions.add_provider_for_devices`; loads it once.

    Raises:
        RuntimeError: The library cannot be loaded, or offers no CPU.
    """
    name = "maskwright.openvino"
    try:
        library = importlib.import_module(PACKAGE).get_library_path()
        ort.register_execution_provider_library(name, str(library))
    except Exception as cause:  # whatever a foreign library raises
        raise RuntimeError(f"openvino could not be loaded: {cause}".splitlines()[0]) from cause
    found = [
        device
        for device in ort.get_ep_devices()
        if device.ep_metadata.get("ov_device") == "CPU"
        or device.ep_options.get("ov_device") == "CPU"
    ]
    if not found:
        raise RuntimeError("openvino was loaded and offers no CPU device")
    return found[:1]
