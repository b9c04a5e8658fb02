"""The documents say what the code does."""

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from service.metrics import Metrics
from service.models import bundled_names
from service.settings import Settings, flag, variable
from tests.service.conftest import server_process

ROOT = Path(__file__).parents[1]
SERVING = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_settings_is_that_of_the_code() -> None:
    for field in dataclasses.fields(Settings):
        default = str(field.default)
        shown = default.lower() if isinstance(field.default, bool) else default
        assert f"| `{flag(field.name)}` | `{variable(field.name)}` | `{shown}` |" in SERVING


def test_the_table_names_every_metric() -> None:
    ours = {
        name.removeprefix("maskwright_")
        for metric in Metrics(CollectorRegistry()).registry.collect()
        if (name := metric.name).startswith("maskwright_")
    }
    named = set(re.findall(r"`([a-z_]+?)(?:_total)?`", SERVING))
    assert ours - named == set()


def curl_lines() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    commands = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [line for line in commands if line.startswith("curl")]


@pytest.mark.parametrize("name", bundled_names())
def test_the_readmes_requests_are_answered_by_each_bundled_model(name: str) -> None:
    commands = curl_lines()
    assert len(commands) >= 3
    with server_process("--model", name) as server:
        for command in commands:
            here = command.replace("localhost:8000", server.url.removeprefix("http://"))
            environment = {**os.environ, "no_proxy": "*"}
            ended = subprocess.run(
                ["bash", "-c", f"{here} --fail-with-body"],
                capture_output=True,
                text=True,
                check=False,
                env=environment,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr


def test_no_document_links_to_a_file_that_is_not_there() -> None:
    documents = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md")]
    for document in documents:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document}: {target}"
