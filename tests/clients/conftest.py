"""A running service for the clients of others."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
os.environ["no_proxy"] = "127.0.0.1"
os.environ["LANGSMITH_TRACING"] = "false"


@contextmanager
def served(*models: str) -> Iterator[str]:
    """The address of a server of models."""
    flags = [flag for model in models for flag in ("--model", model)]
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "--port", "0", "--drain-delay", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield found.group()
    finally:
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0


@pytest.fixture(scope="session")
def serve() -> Callable[..., AbstractContextManager[str]]:
    """Starts a server of models, by name or directory."""
    return served


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server of both bundled models."""
    with served("shakespeare-mhsa", "shakespeare-mlp-mixer") as url:
        yield url
