"""CPU time of a request beyond ONNX Runtime's `run` and the tokenizer's `encode`.

The service runs in this process, its sessions on one thread a call; both functions are wrapped in
clocks of their thread's CPU time, and what is left of the process's belongs to HTTP, scheduling and
Python. Prints JSON: microseconds a request.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

from model.tokenizer import Tokenizer
from service.app import create_app
from service.logs import start_logging
from service.registry import load_models
from service.server import Server
from service.settings import read_settings


class Inside:
    """CPU seconds that threads spent in wrapped functions."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a clock around it."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                spent = time.thread_time() - begun
                with self._lock:
                    self.seconds += spent

        return timed


def main() -> None:
    """Measure each route."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args()
    inside = Inside()
    ort.InferenceSession.run = inside.wrapped(ort.InferenceSession.run)
    ort.InferenceSession.run_with_iobinding = inside.wrapped(
        ort.InferenceSession.run_with_iobinding
    )
    Tokenizer.encode = inside.wrapped(Tokenizer.encode)  # type: ignore[method-assign]
    flags = ["--model", options.model, "--port", "0", "--drain-delay", "0"]
    settings = read_settings(flags, {})
    registry = load_models(settings.model, device="cpu", n_threads=1)
    app = create_app(settings, registry, n_workers=len(os.sched_getaffinity(0)))
    start_logging(level="info", style="json")
    server = Server(app, settings, greeting="overhead")
    found: dict[str, float] = {}

    def measure() -> None:
        try:
            clocked()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def clocked() -> None:
        while not server.started:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        for route, flags in (("/embed", []), ("/fill-mask", ["--mask"])):
            command = [sys.executable, "-m", "service.load_cli", f"http://127.0.0.1:{port}"]
            command += ["--route", route, "--connections", str(options.connections), *flags]
            command += ["--warmup", "0", "--seconds", str(options.seconds)]
            begun, inner = time.process_time(), inside.seconds
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            left = time.process_time() - begun - (inside.seconds - inner)
            found[route] = 1e6 * left / json.loads(done.stdout)["requests"]

    threading.Thread(target=measure, daemon=True).start()
    server.run()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
