"""The command that scores checkpoints and artefacts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from export.score import evaluate, load_subject, main
from model.checkpoint import save_checkpoint
from model.corpus import shipped
from model.evaluate import held_out_score
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder, tiny_checkpoint

TEXT = shipped().text[:4000]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def run_of(mixer: str, tokenizer: Tokenizer, directory: Path, **summary: object) -> Path:
    checkpoint = tiny_checkpoint(mixer, tokenizer)
    save_checkpoint(directory, encoder=checkpoint.encoder, tokenizer=tokenizer, summary=summary)
    return directory


@pytest.fixture
def run_directory(tmp_path: Path, char_tokenizer: Tokenizer) -> Path:
    return run_of("mhsa", char_tokenizer, tmp_path / "run")


def test_the_command_prints_the_score_of_the_held_out_tenth(
    run_directory: Path, data: Path, char_tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run_directory), "--data", str(data), "--length", "8", "--draws", "2"]) == 0
    held_out = char_tokenizer.encode_corpus(TEXT[3600:])
    encoder = random_encoder("mhsa", vocab_size=char_tokenizer.vocab_size)
    expected = held_out_score(encoder, held_out, tokenizer=char_tokenizer, length=8, draws=2)
    out, err = capsys.readouterr()
    assert err == ""
    first, perplexity, _, header, *by_length = out.splitlines()
    assert first == f"windows of 8: {expected}"
    assert perplexity.startswith("pseudo-perplexity ")
    assert header.split() == ["length", "loss", "top-1", "top-5"]
    assert [line.split()[0] for line in by_length] == ["4", "8", "16", "32"]


def test_the_command_prints_json_on_request(
    run_directory: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run_directory), "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["length"] == 32
    assert found["fixed"].keys() == {"loss", "accuracy", "n_masked", "top5"}
    assert found["by_length"].keys() == {"4", "8", "16", "32"}


@pytest.mark.parametrize("mixer", ["mhsa", "mlp_mixer"])
def test_an_artefact_scores_as_the_run_it_was_exported_from(
    artefact_of: Callable[..., Path], tmp_path: Path, char_tokenizer: Tokenizer, mixer: str
) -> None:
    run = load_subject(run_of(mixer, char_tokenizer, tmp_path / "run"))
    exported = load_subject(artefact_of(mixer))
    assert exported.mixer == run.mixer == mixer
    ids = char_tokenizer.encode_corpus(TEXT[:600])
    of_run, of_exported = (evaluate(s.guesser, ids, length=8) for s in (run, exported))
    # 1e-5 in a log-probability is what an export may differ by.
    assert of_exported.fixed.loss == pytest.approx(of_run.fixed.loss, abs=1e-4)
    assert of_exported.pseudo_perplexity == pytest.approx(of_run.pseudo_perplexity, rel=1e-3)


@pytest.mark.parametrize(
    "arguments", [[], ["--length", "33"], ["--draws", "0"], ["--data", "none"]]
)
def test_a_command_that_cannot_score_says_so_in_one_line(
    run_directory: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    subject = run_directory if arguments else run_directory / "missing"
    assert main([str(subject), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maskwright-evaluate: ")
    assert err.count("\n") == 1


def test_a_run_on_another_text_is_not_scored_on_the_shipped_one(
    tmp_path: Path, char_tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = {"name": "diary.txt", "sha256": "0" * 64}
    run_of("mhsa", char_tokenizer, tmp_path / "run", corpus=corpus)
    assert main([str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "run was trained on diary.txt; give its text with --data" in said
