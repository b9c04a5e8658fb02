"""Loaded artefacts: checked, proven by their golden answers, and on the provider asked for."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from export import openvino
from export.artefact import MANIFEST, InvalidArtefact, load_artefact, write_manifest
from service.models import Model, Work, bundled_names, load_model
from service.providers import PROVIDERS, UNUSABLE, ProviderUnavailable, candidates

EVERYTHING = frozenset({"pooled_mean", "top_logprobs", "top_ids", "mask_logprobs", "last_hidden"})


def rewritten(artefact: Path, tmp_path: Path, **fields: object) -> Path:
    """A copy of an artefact with other manifest fields, its hashes right."""
    copy = tmp_path / "copy"
    shutil.copytree(artefact, copy)
    manifest = json.loads((copy / MANIFEST).read_text())
    write_manifest(copy, {k: v for k, v in manifest.items() if k != "sha256"} | fields)
    return copy


def test_answers_in_a_batch_are_those_of_each_text_alone(model_of: Callable[..., Model]) -> None:
    for mixer in ("mhsa", "mlp_mixer"):
        model = model_of(mixer)
        random = np.random.default_rng(3)
        works = [
            Work(random.integers(3, 66, n).tolist(), EVERYTHING, tuple(range(0, n, 5)))
            for n in (1, 32, 7, 8, 9, 20)
        ]
        for work, batched in zip(works, model.run("encode", works), strict=True):
            (alone,) = model.run("encode", [work])
            assert isinstance(alone, dict)
            assert isinstance(batched, dict)
            assert alone["last_hidden"].shape[0] >= len(work.ids)
            for name in EVERYTHING - {"last_hidden", "top_ids"}:
                scale = max(1, np.abs(alone[name]).max())
                assert np.abs(alone[name] - batched[name]).max() <= 1e-5 * scale


def test_a_text_without_masks_beside_one_with_several_gets_its_own_answers(
    model_of: Callable[..., Model],
) -> None:
    plain = Work([5, 6, 7], frozenset({"top_ids"}))
    masked = Work([2, 6, 2], frozenset({"top_ids"}), (0, 2))
    first, second = model_of().run("encode", [plain, masked])
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["top_ids"].shape == (0, 64)
    assert second["top_ids"].shape == (2, 64)


def test_a_wrong_golden_answer_stops_the_start(artefact: Path, tmp_path: Path) -> None:
    golden = json.loads((artefact / MANIFEST).read_text())["golden"]
    packed = golden["encode"]["pooled_mean"]
    numbers = np.frombuffer(base64.b64decode(packed["data"]), np.float32).copy()
    numbers[3] += 0.01
    packed["data"] = base64.b64encode(numbers.tobytes()).decode()
    copy = rewritten(artefact, tmp_path, golden=golden)
    with pytest.raises(InvalidArtefact, match="pooled_mean of encode-attention-op-fp32 is 1"):
        load_model(str(copy), device="cpu")


def test_a_tokenizer_that_does_not_fit_the_graphs_is_refused(
    artefact: Path, artefact_of: Callable[..., Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(artefact, copy)
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["é"] = 66
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    manifest = json.loads((copy / MANIFEST).read_text())
    write_manifest(copy, {k: v for k, v in manifest.items() if k != "sha256"})
    with pytest.raises(InvalidArtefact, match="the tokenizer has 67 ids, the graphs 66"):
        load_model(str(copy), device="cpu")


def test_a_provider_without_a_variant_says_so(artefact: Path) -> None:
    manifest = dict(load_artefact(artefact).manifest)
    loaded = load_artefact(artefact)
    only_encode = [v for v in manifest["variants"] if v["graph"] == "encode"]
    less = type(loaded)(manifest | {"variants": only_encode}, loaded.files)
    with pytest.raises(InvalidArtefact, match="has no attention graph for cpu"):
        PROVIDERS["cpu"].variant(less, "attention")


def test_an_unknown_model_is_refused_with_the_bundled_ones() -> None:
    with pytest.raises(InvalidArtefact, match="neither a directory nor bundled; bundled are: "):
        load_model("no-such-model", device="cpu")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in ort.get_available_providers(),
    reason="this onnxruntime was built with CUDA",
)
def test_cuda_is_refused_where_onnxruntime_was_built_without_it() -> None:
    with pytest.raises(ProviderUnavailable, match=r"install maskwright\[serve-gpu\]"):
        candidates("cuda")
    assert [provider.name for provider in candidates("auto")] == ["cpu"]


OF_CHARACTERS = [name for name in bundled_names() if name.startswith("shakespeare-")]


@pytest.mark.parametrize("name", OF_CHARACTERS)
def test_a_bundled_model_of_characters_loads_by_name_and_answers(name: str) -> None:
    model = load_model(name, device="cpu")
    assert model.name == name
    ids = model.tokenizer.encode("To be, or not to b[MASK], that is the question").ids
    (answer,) = model.run("encode", [Work(ids, frozenset({"top_ids"}), (ids.index(2),))])
    assert isinstance(answer, dict)
    assert model.tokenizer.token_str(int(answer["top_ids"][0, 0])) == "e"


@pytest.mark.parametrize("name", OF_CHARACTERS)
def test_a_bundled_model_of_characters_reached_the_loss_it_was_bundled_for(name: str) -> None:
    training = load_model(name, device="cpu").artefact.manifest["training"]
    held_out = training["held_out"]
    assert (held_out["length"], held_out["draws"]) == (64, 4)
    assert held_out["loss"] <= 1.45


def test_a_precision_that_nothing_here_runs_is_refused_with_the_reasons() -> None:
    with pytest.raises(ProviderUnavailable, match=r"cpu does not run bf16") as refused:
        candidates("cpu", "bf16")
    assert "openvino wants" in str(refused.value)
    with pytest.raises(ProviderUnavailable, match="cpu does not run fp16"):
        candidates("cpu", "fp16")


def test_a_precision_by_name_that_the_artefact_lacks_says_how_to_add_it(artefact: Path) -> None:
    with pytest.raises(InvalidArtefact, match=r"no encode graph for cpu in int8; .* --add"):
        load_model(str(artefact), device="cpu", precision="int8")


def test_openvino_is_taken_only_where_the_processor_has_amx_and_the_plugin_is_there(
    tmp_path: Path,
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu avx2\n")
    assert "amx_bf16" in (openvino.unusable(cpuinfo) or "")
    cpuinfo.write_text("flags\t\t: fpu amx_tile amx_bf16\n")
    assert "not installed" in (openvino.unusable(cpuinfo) or "")
    assert "amx_bf16" in (openvino.unusable(tmp_path / "none") or "")


def test_on_cuda_lengths_go_up_to_buckets_and_on_a_cpu_to_the_next_even_one(
    model_of: Callable[..., Model],
) -> None:
    artefact = model_of().artefact
    for name, columns, n_masks in (("cuda", 16, 8), ("cpu", 10, 1)):
        model = Model(artefact, PROVIDERS["cpu"])
        model.engine.provider = PROVIDERS[name]
        inputs = model.padded([Work([5] * 9, frozenset({"top_ids"}), (3,))])
        assert inputs["input_ids"].shape == (1, columns)
        assert inputs["mask_positions"].shape == (n_masks, 2)


def test_what_a_graph_takes_of_a_gpus_memory_can_be_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(UNUSABLE, "cuda", lambda: None)  # as where the GPU package is installed
    assert "gpu_mem_limit" not in candidates("cuda")[0].options
    assert candidates("cuda", gpu_memory_mib=2048)[0].options["gpu_mem_limit"] == 2**31
