"""Weights in half precision on disk: half the room, and the same answers as in float32."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper
from safetensors.numpy import load

from export.artefact import WEIGHTS, Artefact, InvalidArtefact, load_artefact, write_manifest
from export.build import build_artefact
from export.graphs import FORMS, export_graph
from export.graphs import external_tensors as external_tensors_of
from export.halves import expanded, has_halves, narrowed, rounded
from export.parity import cases, differences, open_session, run, torch_outputs
from export.quantize import halved, quantised
from export.references import external_tensors
from export.weights import digest
from export.widening import widened
from export.wire import encoded, fields
from model.checkpoint import load_checkpoint
from model.config import EncoderConfig
from service.engine import Engine
from service.providers import PROVIDERS
from tests.conftest import random_encoder
from tests.export.conftest import repeatable


@pytest.fixture(scope="module")
def narrow(artefact_of: Callable[..., Path]) -> Path:
    """A tiny artefact whose weights lie in half precision; tests must not write to it."""
    return artefact_of("mhsa", tokenizer="wordpiece")


def served(artefact: Artefact) -> Engine:
    return Engine(artefact, PROVIDERS["cpu"], n_threads=1)


def test_every_weight_takes_two_bytes(narrow: Path) -> None:
    tensors = load((narrow / WEIGHTS).read_bytes())
    tables = {"rotate.cos", "rotate.sin"}  # computed, not learnt
    learnt = {name: t for name, t in tensors.items() if name.split(".mixer.")[-1] not in tables}
    assert {t.dtype for t in learnt.values()} == {np.dtype(np.float16)}
    assert load_artefact(narrow).manifest["weights"] == "fp16"
    assert "| weights on disk | fp16 |" in (narrow / "README.md").read_text()


def test_the_service_says_what_a_plain_session_on_the_files_says(narrow: Path) -> None:
    engine = served(widened(load_artefact(narrow)))
    for graph, file in (("encode", "encode.onnx"), ("attention", "attention.onnx")):
        session = open_session(narrow / file)
        outputs = [output.name for output in session.get_outputs()]
        wanted = {put.name for put in session.get_inputs()}
        for inputs in cases(EncoderConfig(**load_artefact(narrow).manifest["config"])):
            feeds = {name: array for name, array in inputs.items() if name in wanted}
            found = engine.run(graph, feeds, outputs)
            for name, array in zip(outputs, found, strict=True):
                np.testing.assert_array_equal(array, run(session, inputs)[name])


def test_widened_graphs_hold_no_half_precision_and_every_weight_is_the_same(narrow: Path) -> None:
    loaded = load_artefact(narrow)
    wide = widened(loaded)
    for variant in wide.variants:
        before = {t.name: t for t in external_tensors(loaded.files[variant.file])}
        after = {t.name: t for t in external_tensors(wide.files[variant.file])}
        assert after.keys() == before.keys()
        assert {t.dtype for t in after.values()} == {"float32"}
        for name, tensor in after.items():
            (found, expected) = (
                np.frombuffer(files[t.file], t.dtype, np.prod(t.shape, dtype=int), t.offset)
                for files, t in ((wide.files, tensor), (loaded.files, before[name]))
            )
            np.testing.assert_array_equal(found, expected.astype(np.float32))
            assert tensor.shape == before[name].shape
    parsed = onnx.load_from_string(wide.files["encode.onnx"])
    kept = onnx.load_from_string(loaded.files["encode.onnx"])
    assert parsed.graph.node == kept.graph.node
    assert parsed.opset_import == kept.opset_import


def test_int8_and_fp16_add_neither_the_vocabulary_nor_what_is_there_in_half_precision(
    narrow: Path,
) -> None:
    source = onnx.load(narrow / "encode.onnx")
    expanded(source)
    stored = {digest(t) for t in load((narrow / WEIGHTS).read_bytes()).values()}
    config = load_artefact(narrow).manifest["config"]
    heads = config["n_heads"]
    for make in (quantised, halved):
        made = make(source)
        narrowed(made)
        new = [numpy_helper.to_array(t) for t in external_tensors_of(made)]
        added = [t for t in new if digest(t) not in stored]
        assert not any(config["vocab_size"] in t.shape for t in added)
        if make is halved:  # the tables of rotary positions, which fp32 needs in full
            assert {t.shape for t in added} <= {(config["max_tokens"], config["d_model"] // heads)}


def test_an_fp16_graph_reads_the_weights_of_its_norms_from_half_precision() -> None:
    encoder = rounded(random_encoder("mhsa", vocab_size=80, d_model=64))
    made = halved(export_graph(encoder, "encode", FORMS["attention-op"]))
    narrowed(made)
    assert "encoder.blocks.0.mixer_norm.weight.half" in {t.name for t in made.graph.initializer}
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for inputs in cases(encoder.config):
        expected = torch_outputs(encoder, "encode", inputs)
        assert max(differences(run(session, inputs), expected, inputs).values()) < 0.05


def test_notes_stand_in_the_card_and_in_the_manifest(narrow: Path) -> None:
    loaded = load_artefact(narrow)
    assert loaded.manifest["notes"] == "## Known failures\n\nIt was never trained.\n"
    card = loaded.files["README.md"].decode()
    assert "\n## Known failures\n\nIt was never trained.\n\nParity with torch" in card


def test_an_artefact_in_float32_is_left_as_it_is(artefact: Path) -> None:
    loaded = load_artefact(artefact)
    assert widened(loaded) is loaded


def test_graphs_that_compute_in_half_precision_keep_it(narrow: Path) -> None:
    loaded = load_artefact(narrow)
    variants = [v | {"precision": "fp16"} for v in loaded.manifest["variants"]]
    cuda = Artefact({**loaded.manifest, "variants": variants}, loaded.files)
    assert widened(cuda) is cuda


def test_a_tensor_outside_its_file_is_refused(narrow: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(narrow, tmp_path / "copy"))
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:-8])
    manifest = dict(load_artefact(narrow).manifest)
    for field in ("schema_version", "sha256", "files"):
        del manifest[field]
    write_manifest(copy, manifest)
    with pytest.raises(InvalidArtefact, match=f"are not in {WEIGHTS}"):
        widened(load_artefact(copy))


def model_with(weight: np.ndarray) -> ModelProto:
    """A graph that adds a weight to its input."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(weight)]) for name in "xy")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_narrowing_and_expanding_come_back_to_the_same_graph() -> None:
    model = model_with(np.arange(100, dtype=np.float32))
    before = ModelProto.FromString(model.SerializeToString())
    narrowed(model)
    assert has_halves(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.ones(100, np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + np.arange(100))
    expanded(model)
    assert model == before


@pytest.mark.parametrize("value", [1 / 3, 1e6, 1e-9])
def test_a_weight_that_half_precision_does_not_hold_stays_float32(value: float) -> None:
    model = model_with(np.full(100, value, np.float32))
    narrowed(model)
    assert not has_halves(model)


def test_rounding_leaves_the_encoder_and_its_tables_alone() -> None:
    encoder = random_encoder("mhsa", vocab_size=60)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    found = rounded(encoder)
    assert all(torch.equal(before[name], t) for name, t in encoder.state_dict().items())
    for name, tensor in found.named_parameters():
        assert torch.equal(tensor, before[name].half().float())
    buffers = dict(encoder.named_buffers())
    assert all(torch.equal(buffers[name], t) for name, t in found.named_buffers())


def test_weights_beyond_half_precision_are_refused_before_anything_is_written(
    narrow: Path, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(narrow.parent / "mhsa.run")
    with torch.no_grad():
        next(iter(checkpoint.encoder.blocks.parameters())).fill_(1e5)
    with pytest.raises(ValueError, match="beyond what fp16 can hold; export fp32 weights"):
        build_artefact(checkpoint, tmp_path / "out", name="out", weights="fp16")
    with pytest.raises(ValueError, match="weights='fp8'; one of: fp32, fp16"):
        build_artefact(checkpoint, tmp_path / "out", name="out", weights="fp8")
    assert not list(tmp_path.iterdir())


@repeatable
@given(key=st.text(max_size=300), value=st.text(max_size=300))
def test_fields_are_written_as_protobuf_reads_them(key: str, value: str) -> None:
    data = encoded(1, key.encode()) + encoded(2, value.encode())
    assert StringStringEntryProto.FromString(data) == StringStringEntryProto(key=key, value=value)
    assert b"".join(bytes(field.raw) for field in fields(memoryview(data))) == data


@repeatable
@given(n=st.integers(0, 2**63 - 1))
def test_numbers_are_written_as_protobuf_reads_them(n: int) -> None:
    assert list(TensorProto.FromString(encoded(1, n)).dims) == [n]
