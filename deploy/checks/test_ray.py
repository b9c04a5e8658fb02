"""The programs of deploy/ray on a Ray of one machine, in the environment of Ray's own.

Slow: Ray takes half a minute to start. `make check-deploy` makes the environment.
"""

import os
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from deploy.checks.parts import DEPLOY, ROOT, free_port, process
from service.bulk import Options, embed_texts
from service.models import load_model

pytestmark = pytest.mark.slow
PYTHON = os.environ.get("RAY_PYTHON", str(ROOT / ".venv-ray/bin/python"))
TEXTS = ["to be or not to be", "x" * 200, *(f"line {number} of it" for number in range(500))]
SERVE = "from ray import serve; import serving; serve.start(http_options={'port': %d}); serve.run"


def test_ray_data_gives_the_vectors_that_one_process_gives(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS) + "\n")
    command = [PYTHON, DEPLOY / "ray" / "embed.py", corpus, "--out", tmp_path / "out"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    rows = {row["text"]: row for row in pq.read_table(tmp_path / "out").to_pylist()}
    assert set(rows) == set(TEXTS)
    model = load_model("shakespeare-mhsa", device="cpu")
    vectors, _, truncated = embed_texts(model, TEXTS, Options(), n_workers=1)
    for text, vector, cut in zip(TEXTS, vectors, truncated, strict=True):
        assert np.abs(np.float32(rows[text]["vector"]) - vector).max() < 1e-5
        assert rows[text]["truncated"] == cut
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode != 0, "the output of two runs was mixed"


def test_ray_serve_answers_as_the_service_does(tmp_path: Path) -> None:
    port = free_port()
    code = f"{SERVE % port}(serving.app, blocking=True)"
    url = f"http://127.0.0.1:{port}"
    command = ("env", "-C", DEPLOY / "ray", "MASKWRIGHT_DEVICE=cpu", PYTHON, "-c", code)
    with (
        process(*command, log=tmp_path / "log", ready=f"{url}/readyz", seconds=180),
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        filled = client.post("/fill-mask", json={"inputs": "to be or n[MASK]t to be"})
        assert filled.json()[0]["token_str"] == "o"
        (vector,) = client.post("/embed", json={"inputs": TEXTS[:1]}).json()
        model = load_model("shakespeare-mhsa", device="cpu")
        ours, _, _ = embed_texts(model, TEXTS[:1], Options(), n_workers=1)
        assert np.abs(np.float32(vector) - ours[0]).max() < 1e-5
        refused = client.post("/embed", json={"inputs": 5})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_field")
        assert "maskwright_texts_total" in client.get("/metrics").text
