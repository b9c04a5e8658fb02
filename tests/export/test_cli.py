"""The command `maskwright-export`: a checkpoint in, an artefact or one line of refusal out."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from export.artefact import load_artefact, write_manifest
from export.cli import main
from model.checkpoint import FILE_NAME, save_checkpoint
from model.config import PRESETS
from model.corpus import Corpus, shipped
from model.tokenizer import TRAINERS, Tokenizer
from model.train import Run, train
from tests.conftest import random_encoder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, char_tokenizer: Tokenizer) -> Path:
    """The directory of a checkpoint with random weights."""
    encoder = random_encoder("mhsa", vocab_size=char_tokenizer.vocab_size, n_layers=1)
    directory = tmp_path_factory.mktemp("checkpoint")
    save_checkpoint(directory, encoder=encoder, tokenizer=char_tokenizer, summary={})
    return directory


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The directory of a run that took two steps, with one layer and a BPE tokenizer."""
    corpus = Corpus("excerpt", shipped().text[:5000], "public domain")
    tokenizer = TRAINERS["bpe"]([corpus.text], vocab_size=300)
    preset = PRESETS["tiny"]
    config = preset.encoder_config(mixer="mlp_mixer", vocab_size=tokenizer.vocab_size)
    recipe = dataclasses.replace(
        preset.recipe, tokenizer="bpe", row_lengths=(8,), batch_tokens=64, steps=2, eval_length=8
    )
    config = dataclasses.replace(config, n_layers=1, tied_head=True)
    train(Run(config=config, recipe=recipe, corpus=corpus, tokenizer=tokenizer), tmp_path / "run")
    return tmp_path / "run"


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that the command refuses with."""
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("maskwright-export: ")
    return line.removeprefix("maskwright-export: ")


@pytest.mark.slow
def test_what_lies_between_two_runs_is_exported_without_their_score(
    trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "between"
    assert main([str(trained), str(out), "--blend", str(trained), "0.25"]) == 0
    training = load_artefact(out).manifest["training"]
    assert training["blend"] == {"run": trained.name, "share": 0.25}
    assert "held_out" not in training
    assert f"| taken | 25% of the way back to {trained.name} |" in (out / "README.md").read_text()


@pytest.mark.slow
def test_a_trained_run_replaces_the_artefact_at_out_with_force_and_says_so(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "models" / "tiny-bpe"
    out.mkdir(parents=True)
    write_manifest(out, {"name": "old"})
    assert main([str(trained), str(out), "--force", "--prompt", "query=query: "]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines()[-1] == (
        f"wrote {out}; serve it with: maskwright-serve --model {out}"
    )
    assert [path.name for path in out.parent.iterdir()] == ["tiny-bpe"]
    artefact = load_artefact(out)
    assert artefact.name == "tiny-bpe"
    summary = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert artefact.manifest["prompts"] == {"query": "query: "}
    assert artefact.manifest["training"]["step"] == 2
    assert artefact.manifest["training"]["corpus"] == summary["corpus"]
    assert artefact.manifest["text_licence"] == "public domain"
    facts, tokenizer = artefact.manifest["tokenizer"], Tokenizer.from_json(artefact.tokenizer_json)
    assert (facts["kind"], facts["vocab_size"]) == ("bpe", 300)
    assert facts["mask_id"] == tokenizer.mask_id
    card = artefact.files["README.md"].decode()
    assert "MLP-Mixer" in card
    assert "| licence of the text | public domain |" in card
    assert "| corpus | excerpt, sha256 " in card
    assert "| steps | 2 of 64 tokens |" in card
    assert "| held-out masked loss | " in card


def test_an_existing_out_is_refused_without_force_and_kept(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "kept").touch()
    assert refusal(capsys, checkpoint, out) == f"{out} exists; --force replaces it"
    assert (out / "kept").exists()


@pytest.mark.parametrize(
    "name", ["Shakespeare", "two words", "../up", "a/b", "-dash", "ümlaut", "line\n", "a" * 65]
)
def test_a_name_that_could_not_stand_in_a_path_or_metric_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    line = refusal(capsys, checkpoint, tmp_path / "out", f"--name={name}")
    assert line == f"name={name!r}; up to 64 of a-z, 0-9, '.', '_' and '-'"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("prompt", ["query", "=query: ", "query="])
def test_a_prompt_without_a_name_or_a_text_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], prompt: str
) -> None:
    line = refusal(capsys, checkpoint, tmp_path / "out", f"--prompt={prompt}")
    assert line == f"prompt={prompt!r}; NAME=TEXT is wanted"


def test_a_name_taken_from_out_must_be_a_good_one_too(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, checkpoint, tmp_path / "My Model").startswith("name='My Model'; ")
    assert not list(tmp_path.iterdir())


def test_a_missing_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No such file" in refusal(capsys, tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    line = refusal(capsys, tmp_path / "empty", tmp_path / "out")
    assert "No such file" in line
    assert FILE_NAME in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:7],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"\xff" * 100,
        lambda data: data[:20] + b"\x00" + data[21:],
    ],
    ids=["empty", "no header", "one byte short", "half", "garbage", "a byte of the header"],
)
def test_a_damaged_checkpoint_is_refused(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(damage((checkpoint / FILE_NAME).read_bytes()))
    assert refusal(capsys, path, tmp_path / "out").startswith(f"{path} is damaged: ")
    assert not (tmp_path / "out").exists()


def test_weights_of_another_program_are_refused(
    artefact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, artefact / "weights.safetensors", tmp_path / "out")
    assert line.endswith(
        "weights.safetensors is no checkpoint of ours: format 'onnx-external-data'"
    )
