"""Further precisions: proven on trained weights, all or nothing, and smaller than fp32."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from export.artefact import WEIGHTS, load_artefact
from export.cli import main
from export.parity import ParityError, alone_against_batched, cases, open_session, run
from export.quantize import quantised
from export.variants import add_variant
from export.variants import agreement as measured_agreement
from model.config import EncoderConfig
from model.corpus import shipped
from service.models import BUNDLED, Work, load_model

TEXT = shipped().held_out()[:40_000]
NAMES = {"mhsa": "shakespeare-mhsa", "mlp_mixer": "shakespeare-mlp-mixer"}


def copied(name: str, folder: Path) -> Path:
    """A trained artefact that a test may write to."""
    return Path(shutil.copytree(BUNDLED / name, folder / name))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a trained artefact of a mixer with int8 and fp16 added."""
    made: dict[str, Path] = {}

    def make(mixer: str) -> Path:
        if mixer not in made:
            made[mixer] = copied(NAMES[mixer], tmp_path_factory.mktemp("variants"))
            for precision in ("int8", "fp16"):
                add_variant(made[mixer], precision, text=TEXT)
        return made[mixer]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("mixer", NAMES)
def test_a_precision_is_added_with_its_agreement_and_its_own_weights(
    extended: Callable[[str], Path], mixer: str
) -> None:
    loaded = load_artefact(extended(mixer))
    found = {v.precision: v for v in loaded.variants if v.graph == "encode"}
    assert set(found) == {"fp32", "int8", "fp16"}
    assert found["int8"].providers == ("cpu",)
    assert found["fp16"].providers == ("cuda",)
    for precision in ("int8", "fp16"):
        agreement = loaded.manifest["agreement"][precision]
        assert agreement["cosine"]["pooled_mean"] >= 0.999
        assert agreement["top1"] >= 0.97
        anew = measured_agreement(extended(mixer), precision, text=TEXT)
        assert (anew.cosine, anew.top1) == (agreement["cosine"], agreement["top1"])
        assert found[precision].files == (WEIGHTS, f"weights.{precision}.safetensors")
        assert 0 < found[precision].alone_against_batched < 1
        assert found[precision].tolerance > max(found[precision].parity.values())
    assert len(loaded.files["weights.int8.safetensors"]) < 0.3 * len(loaded.files[WEIGHTS])


def test_every_product_with_weights_is_int8_but_the_mixers_first_over_positions(
    artefact: Path,
) -> None:
    whole = onnx.load(artefact / "encode.onnx")
    found = quantised(whole)
    n_products = sum(node.op_type == "MatMul" for node in whole.graph.node)
    manifest = load_artefact(artefact).manifest
    n_kept = manifest["config"]["n_layers"] if manifest["mixer"] == "mlp_mixer" else 0
    operators = [node.op_type for node in found.graph.node]
    assert operators.count("MatMulIntegerToFloat") == n_products - n_kept > 0
    assert operators.count("MatMul") == n_kept


def test_no_pair_of_int8_products_is_beyond_16_bits(artefact: Path) -> None:
    found = quantised(onnx.load(artefact / "encode.onnx"))
    arrays = {t.name: numpy_helper.to_array(t) for t in found.graph.initializer}
    cut = {node.output[0]: node.input[0] for node in found.graph.node}  # of a Slice or Transpose
    n_found = 0
    for node in found.graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            weight = node.input[1]
            while weight not in arrays:
                weight = cut[weight]
            largest_activation = 127 if arrays[node.input[4]] == 0 else 255
            largest_weight = int(np.abs(arrays[weight].astype(int)).max())
            assert 2 * largest_activation * largest_weight < 2**15
            assert largest_weight == {127: 127, 255: 63}[largest_activation]
            n_found += 1
    assert n_found > 0


def test_int8_vectors_are_near_those_of_fp32_at_every_length(artefact: Path) -> None:
    found = quantised(onnx.load(artefact / "encode.onnx"))
    session = ort.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    for length in (5, 32):
        ids = np.random.default_rng(1).integers(3, 60, (2, length))
        inputs = {
            "input_ids": ids,
            "lengths": np.array([length, 3]),
            "mask_positions": np.array([[0, 1]]),
        }
        mine = run(session, inputs)["pooled_mean"]
        exact = run(open_session(artefact / "encode.onnx"), inputs)["pooled_mean"]
        for one, other in zip(mine, exact, strict=True):
            assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.99


def test_the_scales_of_a_text_in_int8_do_not_hang_on_the_texts_beside_it(artefact: Path) -> None:
    graph = quantised(onnx.load(artefact / "encode.onnx")).SerializeToString()
    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    config = EncoderConfig(**load_artefact(artefact).manifest["config"])
    assert alone_against_batched(session, cases(config)[-1]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("mixer", NAMES)
def test_the_service_answers_in_int8_by_name_and_in_fp32_otherwise(
    extended: Callable[[str], Path], mixer: str
) -> None:
    exact, by_name = (
        load_model(str(extended(mixer)), device="cpu", precision=precision)
        for precision in ("auto", "int8")
    )
    assert exact.engine.variant("encode").precision == "fp32"
    assert by_name.engine.variant("encode").precision == "int8"
    ids = exact.tokenizer.encode("Now is the winter of our discontent").ids
    work = Work(ids, frozenset({"pooled_mean"}))
    one, other = (model.run("encode", [work])[0] for model in (exact, by_name))
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    a, b = one["pooled_mean"], other["pooled_mean"]
    assert 0.999 <= float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) < 1


def test_weights_that_were_never_trained_do_not_pass_and_nothing_is_left(
    artefact: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(artefact, tmp_path / "copy"))
    with pytest.raises(ParityError, match="weights that were trained too little do not pass"):
        add_variant(copy, "int8", text=TEXT)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
    assert load_artefact(copy).manifest == load_artefact(artefact).manifest


@pytest.mark.slow
def test_what_cannot_be_added_is_refused_with_the_reason(
    extended: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(extended("mhsa"))
    assert main(["--add", "int8", directory]) == 2
    assert "has int8 already" in capsys.readouterr().err
    assert main(["--add", "bf16", directory]) == 2
    assert "bf16 has to be measured where it runs: openvino wants" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([directory])


@pytest.mark.slow
def test_fp16_keeps_what_half_precision_cannot_hold(extended: Callable[[str], Path]) -> None:
    directory = extended("mhsa")
    session = open_session(directory / "encode.fp16.onnx")
    ids = np.full((1, 30), 9, np.int64)
    inputs = {
        "input_ids": ids,
        "lengths": np.array([30]),
        "mask_positions": np.array([[0, 3]]),
    }
    half, whole = run(session, inputs), run(open_session(directory / "encode.onnx"), inputs)
    assert half["mask_logprobs"].dtype == np.float32
    # Computed in fp32, then rounded to fp16 on the way out.
    assert np.abs(np.exp(half["mask_logprobs"]).sum() - 1) < 1e-3
    assert np.abs(half["mask_logprobs"] - whole["mask_logprobs"]).max() < 0.05
