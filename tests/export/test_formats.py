"""Formats of others: what their libraries read of a directory, and that it is written whole.

`make test-clients` loads them in transformers.js, in optimum and by Triton's schema.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from transformers import AutoTokenizer

from export.cli import main
from export.hugging_face import GRAPH, write_hugging_face
from export.parity import open_session
from export.triton import configuration, write_repository
from model.checkpoint import Checkpoint, load_checkpoint


@pytest.fixture(scope="module")
def checkpoint(artefact_of: Callable[..., Path]) -> Checkpoint:
    """A run of word pieces that was never trained, with one layer."""
    return load_checkpoint(artefact_of("mhsa", tokenizer="wordpiece").parent / "mhsa.run")


@pytest.fixture(scope="module")
def written(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("formats") / "tiny"
    write_hugging_face(checkpoint, out)
    return out


@pytest.mark.slow
def test_a_text_is_wrapped_and_answered_as_the_encoder_answers_it(
    written: Path, checkpoint: Checkpoint
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(written)
    texts = ["to be or [MASK] to be", "no"]
    found = tokenizer(texts, padding=True, return_tensors="np")
    ours = checkpoint.tokenizer
    rows = [ours.wrap(ours.encode(text).ids) for text in texts]
    lengths = found["attention_mask"].sum(axis=1)
    assert [row[:n].tolist() for row, n in zip(found["input_ids"], lengths, strict=True)] == rows
    assert (tokenizer.mask_token_id, tokenizer.pad_token_id) == (ours.mask_id, ours.pad_id)
    session = open_session(written / GRAPH)
    feeds = {put.name: found[put.name] for put in session.get_inputs()}
    logits, hidden = session.run(["logits", "last_hidden_state"], feeds)
    with torch.no_grad():
        expected = checkpoint.encoder(torch.tensor(rows[:1]))
        everywhere = checkpoint.encoder.every_logit(expected)[0]
    np.testing.assert_allclose(hidden[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(logits[0], everywhere, atol=1e-4)


@pytest.mark.slow
def test_a_directory_that_is_there_stays_unless_it_was_written_by_this(
    written: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(FileExistsError, match=r"exists; --force replaces it$"):
        write_hugging_face(checkpoint, written)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "onnx").mkdir()
    (tmp_path / GRAPH).write_bytes(b"of somebody else")
    with pytest.raises(FileExistsError, match=r"is not an export; --force replaces nothing else$"):
        write_hugging_face(checkpoint, tmp_path, replace=True)
    assert (tmp_path / GRAPH).read_bytes() == b"of somebody else"


@pytest.mark.slow
def test_a_triton_repository_keeps_the_models_of_others(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    for name in ("resnet50", "ours-attention"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'name: "{name}"')
    with pytest.raises(FileExistsError, match=r"ours-attention is not an export"):
        write_repository(checkpoint, tmp_path, name="ours", replace=True)
    kept = {path.name: (path / "config.pbtxt").read_text() for path in tmp_path.iterdir()}
    assert kept == {name: f'name: "{name}"' for name in ("resnet50", "ours-attention")}
    write_repository(checkpoint, tmp_path, name="mine")
    folders = ["mine-attention", "mine-encode", "ours-attention", "resnet50"]
    assert sorted(path.name for path in tmp_path.iterdir()) == folders
    with pytest.raises(FileExistsError, match=r"mine-encode exists; --force replaces it$"):
        write_repository(checkpoint, tmp_path, name="mine")


def test_tritons_configuration_gives_each_tensor_its_type_and_open_sizes(artefact: Path) -> None:
    model = onnx.load(artefact / "encode.decomposed.onnx", load_external_data=False)
    lines = configuration("x-encode", model).splitlines()
    assert lines[1:4] == ['name: "x-encode"', 'platform: "onnxruntime_onnx"', "max_batch_size: 0"]
    assert 'input { name: "mask_positions" data_type: TYPE_INT64 dims: [-1, 2] }' in lines
    assert 'output { name: "pooled_mean" data_type: TYPE_FP32 dims: [-1, 32] }' in lines
    assert 'output { name: "top_ids" data_type: TYPE_INT64 dims: [-1, 64] }' in lines


@pytest.mark.parametrize("flags", [["--weights", "fp16"], ["--prompt", "a=b"], ["--notes", "x"]])
def test_flags_of_artefacts_are_refused_for_other_formats(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "out", "--format", "triton", *flags])
    assert "--prompt, --notes and --weights are of artefacts" in capsys.readouterr().err
