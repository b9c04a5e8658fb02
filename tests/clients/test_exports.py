"""What `maskwright-export --format` writes says, where it is loaded, what the service says."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import onnxruntime as ort
import pytest
import tritonclient
from google.protobuf import text_format

HERE = Path(__file__).parent
TEXT = "to be or [MASK] to be, that is the question"
ENVIRONMENT = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run of word pieces of each mixer, in every format."""
    root = tmp_path_factory.mktemp("exports")
    small = ["--preset", "tiny", "--tokenizer", "wordpiece", "--vocab-size", "500", "--steps", "30"]
    for mixer in ("mhsa", "mlp_mixer"):
        run = root / f"{mixer}.run"
        command("model.cli", *small, "--mixer", mixer, "--out", str(run), "--threads", "1")
        for form in ("artefact", "transformers", "triton"):
            command("export.cli", str(run), str(root / f"{mixer}-{form}"), "--format", form)
    return root


def command(*module: str) -> None:
    subprocess.run([sys.executable, "-m", *module], check=True, capture_output=True)


@pytest.fixture(scope="session", params=["mhsa", "mlp_mixer"])
def mixer(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def ours(
    exports: Path, mixer: str, serve: Callable[..., AbstractContextManager[str]]
) -> dict[str, Any]:
    with serve(str(exports / f"{mixer}-artefact")) as url, httpx.Client(base_url=url) as client:
        candidates = client.post("/fill-mask", json={"inputs": TEXT}).raise_for_status().json()
        vectors = client.post("/embed", json={"inputs": TEXT}).raise_for_status().json()
        return {"candidates": candidates, "vector": vectors[0]}


def assert_alike(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    tokens = [[found["token"] for found in each["candidates"]] for each in (theirs, ours)]
    assert tokens[0] == tokens[1]
    scores = [[found["score"] for found in each["candidates"]] for each in (theirs, ours)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
    np.testing.assert_allclose(theirs["vector"], ours["vector"], atol=1e-5)


def said_by(*line: str | Path) -> dict[str, Any]:
    ended = subprocess.run(
        [*map(str, line), TEXT], check=False, capture_output=True, text=True, env=ENVIRONMENT
    )
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def test_transformers_js_says_what_the_service_says(
    exports: Path, mixer: str, ours: dict[str, Any]
) -> None:
    script = HERE / "transformers_js/answers.mjs"
    assert_alike(said_by("node", script, exports / f"{mixer}-transformers"), ours)


def test_optimum_says_what_the_service_says(
    exports: Path, mixer: str, ours: dict[str, Any]
) -> None:
    python = HERE.parents[1] / ".venv-optimum/bin/python"
    side = HERE / "optimum_side.py"
    assert_alike(said_by(python, side, exports / f"{mixer}-transformers"), ours)


@pytest.fixture(scope="session")
def schema() -> ModuleType:
    """Triton's model configuration; from its file, as its package wants grpc."""
    path = Path(tritonclient.__file__).parent / "grpc/model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_triton_repository_is_one_by_tritons_schema(
    exports: Path, mixer: str, schema: ModuleType
) -> None:
    root = exports / f"{mixer}-triton"
    folders = sorted(path.name for path in root.iterdir())
    assert folders == [f"{root.name}-attention", f"{root.name}-encode"]
    types = {"tensor(int64)": schema.TYPE_INT64, "tensor(float)": schema.TYPE_FP32}
    for folder in folders:
        text = (root / folder / "config.pbtxt").read_text()
        config = text_format.Parse(text, schema.ModelConfig())
        assert (config.name, config.platform) == (folder, "onnxruntime_onnx")
        assert config.max_batch_size == 0
        session = ort.InferenceSession(root / folder / "1/model.onnx")
        for said, found in (
            (config.input, session.get_inputs()),
            (config.output, session.get_outputs()),
        ):
            assert [(put.name, put.data_type, list(put.dims)) for put in said] == [
                (put.name, types[put.type], [d if isinstance(d, int) else -1 for d in put.shape])
                for put in found
            ]
