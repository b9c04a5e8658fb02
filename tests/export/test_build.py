"""What an export leaves: a manifest that states facts, golden answers, a card; or nothing."""

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray

from export.artefact import Artefact, load_artefact, write_manifest
from export.build import build_artefact
from export.parity import FP32_BOUND, torch_outputs
from model.checkpoint import Checkpoint
from model.config import encoder_config_from_json
from model.encoder import Encoder
from model.mixers import MIXERS
from model.pooling import POOLINGS
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder, tiny_checkpoint

MIXER_NAMES = {"mhsa": "self-attention", "mlp_mixer": "MLP-Mixer"}


@pytest.fixture
def loaded(artefact: Path) -> Artefact:
    return load_artefact(artefact)


@pytest.fixture
def encoder(loaded: Artefact, encoder_of: Callable[[str], Encoder]) -> Encoder:
    """The encoder that `artefact` was exported from."""
    return encoder_of(loaded.manifest["mixer"])


def unpacked(array: dict[str, Any]) -> NDArray[np.generic]:
    """A golden array from its shape, type and base64."""
    data = np.frombuffer(base64.b64decode(array["data"], validate=True), array["dtype"])
    return data.reshape(array["shape"])


def test_an_artefact_holds_the_files_of_the_design(artefact: Path) -> None:
    assert sorted(path.name for path in artefact.iterdir()) == [
        "README.md",
        "attention.onnx",
        "config.json",
        "encode.decomposed.onnx",
        "encode.onnx",
        "manifest.json",
        "tokenizer.json",
        "weights.safetensors",
    ]


def test_the_manifest_states_the_encoders_facts(
    loaded: Artefact, encoder: Encoder, artefact: Path
) -> None:
    manifest, config = loaded.manifest, encoder.config
    assert manifest["schema_version"] == 1
    assert manifest["name"] == artefact.name
    assert manifest["mixer"] == config.mixer
    assert manifest["kind"] == MIXERS[config.mixer].kind
    assert manifest["max_tokens"] == config.max_tokens
    assert manifest["poolings"] == list(POOLINGS)
    assert encoder_config_from_json(manifest["config"]) == config
    assert manifest["config"] == json.loads(loaded.files["config.json"])
    assert manifest["training"] == {}
    assert manifest["text_licence"] == "not stated"


def test_the_manifest_states_the_tokenizers_facts(
    loaded: Artefact, char_tokenizer: Tokenizer
) -> None:
    assert loaded.manifest["tokenizer"] == {
        "kind": "char",
        "vocab_size": char_tokenizer.vocab_size,
        "mask_token": "[MASK]",
        "mask_id": char_tokenizer.mask_id,
    }
    assert Tokenizer.from_json(loaded.tokenizer_json).encode("To [MASK]e").ids == (
        char_tokenizer.encode("To [MASK]e").ids
    )


def test_the_variants_say_which_graph_form_and_providers_each_file_is_for(
    loaded: Artefact,
) -> None:
    rows = [(v.name, v.graph, v.form, v.precision, v.providers, v.file) for v in loaded.variants]
    cpu, every = ("cpu", "cuda"), ("cpu", "cuda", "openvino")
    assert rows == [
        ("encode-attention-op-fp32", "encode", "attention-op", "fp32", cpu, "encode.onnx"),
        ("encode-decomposed-fp32", "encode", "decomposed", "fp32", every, "encode.decomposed.onnx"),
        ("attention-decomposed-fp32", "attention", "decomposed", "fp32", every, "attention.onnx"),
    ]
    assert all(variant.files == ("weights.safetensors",) for variant in loaded.variants)


def test_each_variant_states_its_parity_of_every_output_and_alone_against_batched(
    loaded: Artefact,
) -> None:
    encode = {f"pooled_{name}" for name in POOLINGS} | {
        *("last_hidden", "top_logprobs", "top_ids", "mask_logprobs")
    }
    outputs = {"encode": encode, "attention": {"mixing_weights"}}
    for variant in loaded.variants:
        assert variant.parity.keys() == outputs[variant.graph]
        for difference in [*variant.parity.values(), variant.alone_against_batched]:
            assert 0 <= difference <= FP32_BOUND
        assert variant.tolerance == pytest.approx(1e-4)


def test_golden_arrays_are_two_rows_and_every_answer_but_the_large_ones(loaded: Artefact) -> None:
    golden, config = loaded.manifest["golden"], loaded.manifest["config"]
    shapes = {
        part: {name: (unpacked(array).dtype, unpacked(array).shape) for name, array in each.items()}
        for part, each in golden.items()
    }
    n, f = np.dtype(np.int64), np.dtype(np.float32)
    width, heads, layers = config["d_model"], config["n_heads"], config["n_layers"]
    assert shapes == {
        "inputs": {"input_ids": (n, (2, 6)), "lengths": (n, (2,)), "mask_positions": (n, (2, 2))},
        "encode": {
            **{f"pooled_{name}": (f, (2, width)) for name in POOLINGS},
            "mask_logprobs": (f, (2, config["vocab_size"])),
        },
        "attention": {"mixing_weights": (f, (2, layers, heads, 6, 6))},
    }


def test_golden_answers_are_torchs(loaded: Artefact, encoder: Encoder) -> None:
    golden = loaded.manifest["golden"]
    inputs = {name: unpacked(array) for name, array in golden["inputs"].items()}
    assert inputs["lengths"].tolist() == [6, 4]
    copies = {name: array.copy() for name, array in inputs.items()}  # torch wants to own them
    for graph in ("encode", "attention"):
        answers = torch_outputs(encoder, graph, copies)
        for name, packed in golden[graph].items():
            # As exported in this very process and version: torch may only split its sums anew.
            np.testing.assert_allclose(unpacked(packed), answers[name], rtol=1e-6, atol=1e-6)


def test_graphs_give_the_golden_answers_within_their_variants_tolerance(
    loaded: Artefact, artefact: Path
) -> None:
    golden = loaded.manifest["golden"]
    inputs = {name: unpacked(array) for name, array in golden["inputs"].items()}
    for variant in loaded.variants:
        session = ort.InferenceSession(artefact / variant.file, providers=["CPUExecutionProvider"])
        feeds = {put.name: inputs[put.name] for put in session.get_inputs()}
        expected = {name: unpacked(packed) for name, packed in golden[variant.graph].items()}
        for name, found in zip(expected, session.run(list(expected), feeds), strict=True):
            scale = max(1.0, float(np.abs(expected[name]).max()))
            assert np.abs(found - expected[name]).max() <= variant.tolerance * scale


def test_the_card_names_the_mixer_the_licence_and_each_variant(loaded: Artefact) -> None:
    card = loaded.files["README.md"].decode()
    assert card.startswith(f"# {loaded.name}\n")
    assert MIXER_NAMES[loaded.manifest["mixer"]] in card
    assert "| licence of the text | not stated |" in card
    assert f"| longest text | {loaded.manifest['max_tokens']} tokens |" in card
    assert "| training | none |" in card
    assert all(f"| {variant.name} | " in card for variant in loaded.variants)


@pytest.fixture
def checkpoint(char_tokenizer: Tokenizer) -> Checkpoint:
    """A run that was never trained."""
    return tiny_checkpoint("mhsa", char_tokenizer)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, hidden ones too."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_an_artefact_that_is_there_is_kept_unless_the_caller_says_replace(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    out = old_artefact(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match=r"out exists; --force replaces it$"):
        build_artefact(checkpoint, out, name="new")
    assert contents(tmp_path) == before


def old_artefact(folder: Path) -> Path:
    """A directory with a manifest and a file, as an earlier export may have left it."""
    out = folder / "out"
    out.mkdir()
    (out / "old.onnx").write_bytes(b"an old graph")
    write_manifest(out, {"name": "old"})
    return out


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_is_no_artefact_is_never_replaced(
    checkpoint: Checkpoint, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "precious"
    if kind == "directory":
        out.mkdir()
        (out / "thesis.txt").write_text("years of work", encoding="utf-8")
    else:
        out.write_text("years of work", encoding="utf-8")
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match=r"is not an export; --force replaces nothing else$"):
        build_artefact(checkpoint, out, name="new", replace=True)
    assert contents(tmp_path) == before


def test_an_interrupted_export_leaves_nothing_behind(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    def interrupt(line: str) -> None:
        assert list(tmp_path.iterdir())  # it has begun
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_artefact(checkpoint, tmp_path / "out", name="new", tell=interrupt)
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_diverged_is_not_exported_and_the_artefact_there_stays(
    char_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    encoder = random_encoder("mlp_mixer", vocab_size=char_tokenizer.vocab_size, n_layers=1)
    with torch.no_grad():
        encoder.head_bias[0] = math.nan
    out = old_artefact(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"^head_bias is not finite: training diverged"):
        build_artefact(Checkpoint(encoder, char_tokenizer, {}), out, name="new", replace=True)
    assert contents(tmp_path) == before
    assert list(tmp_path.iterdir()) == [out]
