"""A running service for the clients of others."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
os.environ["no_proxy"] = "127.0.0.1"
os.environ["LANGSMITH_TRACING"] = "false"


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a server of both bundled models."""
    models = ("--model", "shakespeare-mhsa", "--model", "shakespeare-mlp-mixer")
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "--port", "0", "--drain-delay", "0", *models],
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
