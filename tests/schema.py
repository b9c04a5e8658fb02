"""The OpenAPI document against the service, by generated requests: `python -m tests.schema`."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.service.conftest import server_process

CONFIG = Path(__file__).with_name("schemathesis.toml")
MODELS = ("--model", "shakespeare-mhsa", "--model", "shakespeare-mlp-mixer")
N_CASES = 2000  # at least


def generated(url: str, *, n_examples: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """A run of Schemathesis with all its checks; `directory` takes the cache that it leaves."""
    command = [str(Path(sys.executable).with_name("st")), "--config-file", str(CONFIG), "run"]
    flags = ["--checks", "all", "--max-examples", str(n_examples), "--seed", "1"]
    return subprocess.run(
        [*command, f"{url}/openapi.json", *flags],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "no_proxy": "*"},
    )


def main() -> int:
    """Print what Schemathesis says; 1 if it found a fault or made too few requests."""
    with tempfile.TemporaryDirectory() as directory, server_process(*MODELS) as server:
        ended = generated(server.url, n_examples=100, directory=Path(directory))
    sys.stdout.write(ended.stdout + ended.stderr)
    passed = re.search(r"(\d+) generated, \1 passed", ended.stdout)
    enough = passed is not None and int(passed[1]) >= N_CASES
    return 0 if ended.returncode == 0 and enough else 1


if __name__ == "__main__":
    sys.exit(main())
