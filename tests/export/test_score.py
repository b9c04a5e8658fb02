"""The command that scores checkpoints and artefacts."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from export.score import evaluate, main
from export.subject import load_subject
from model.checkpoint import save_checkpoint
from model.cleaning import is_held_out
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
    assert found.keys() == {"subject", "precision", "held_out"}
    assert (found["subject"], found["precision"]) == ("run", "fp32")
    held_out = found["held_out"]
    assert held_out["length"] == 32
    assert held_out["fixed"].keys() == {"loss", "accuracy", "n_masked", "top5"}
    assert held_out["by_length"].keys() == {"4", "8", "16", "32"}


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


@pytest.fixture
def evaluation_files(tmp_path: Path) -> list[str]:
    """The options that name a file of each kind; in a character model words are one letter."""
    facts = [{"relation": "P", "subject": name, "object": "y"} for name in "abcdefgh"]
    pair = {"uid": "set", "field": "syntax", "good": "to be", "bad": "be to"}
    texts = {
        "text": TEXT[:400],
        "sts": "\t\t\t\t1\tto be\tor not\n\t\t\t\t2\tto be\tto do\n",
        "cloze": "".join(f"{json.dumps(fact)}\n" for fact in facts),
        "patterns": json.dumps({"P": ["[X] [Y].", "[Y] [X]"]}),
        "capitals": "France\tP\nPeru\tLima\n",
        "blimp": 3 * f"{json.dumps(pair)}\n",
    }
    options = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        options += [f"--{name}", str(tmp_path / name)]
    return options


def test_the_scores_asked_for_are_printed_and_no_other(
    run_directory: Path, evaluation_files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run_directory), *evaluation_files]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text, sts, cloze, _, _, capitals, pairs, syntax = out.splitlines()
    assert text.startswith("text, windows of 32: loss ")
    assert sts.startswith("sts: Spearman (times 100) ")
    assert cloze.startswith("cloze: top-1 ")
    assert "(1 countries; left out: 1 of several tokens)" in capitals
    assert pairs.startswith("minimal pairs: ")
    assert syntax.split()[0] == "syntax"


@pytest.mark.parametrize("mixer", ["mhsa", "mlp_mixer"])
def test_an_artefact_has_every_score_that_its_run_has(
    artefact_of: Callable[..., Path],
    tmp_path: Path,
    char_tokenizer: Tokenizer,
    evaluation_files: list[str],
    capsys: pytest.CaptureFixture[str],
    mixer: str,
) -> None:
    run = tmp_path / "run"
    checkpoint = tiny_checkpoint(mixer, char_tokenizer, n_layers=2)
    save_checkpoint(run, encoder=checkpoint.encoder, tokenizer=char_tokenizer, summary={})
    options = [*evaluation_files, "--pooling", "max", "--dimensions", "8", "--pairs-per-set", "2"]
    found = []
    for subject in (run, artefact_of(mixer)):
        assert main([str(subject), *options, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    of_run, of_artefact = found
    assert of_run.keys() == {
        *("subject", "precision", "text", "sts", "cloze", "capitals", "blimp"),
    }
    assert of_run["blimp"]["n_pairs"] == 2
    assert of_run["sts"][0]["by_dimensions"].keys() == {"8"}
    # 1e-5 in a log-probability is what an export may differ by.
    (text,), (exported,) = of_run["text"], of_artefact["text"]
    assert exported["score"] == pytest.approx(text["score"], abs=1e-4)
    for name in ("sts", "cloze", "capitals", "blimp"):
        assert of_artefact[name] == of_run[name]


def test_a_precision_is_scored_if_the_artefact_has_it(
    artefact_of: Callable[..., Path], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artefact = str(artefact_of("mhsa"))
    asked = ["--precision", "fp32", "--agreement", "--data", str(data), "--json"]
    assert main([artefact, *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["precision"] == "fp32"
    assert found["agreement"]["top1"] == 1
    assert found["agreement"]["cosine"]["pooled_mean"] == pytest.approx(1)
    assert main([artefact, "--precision", "int8"]) == 2
    assert "precision='int8'; tiny-char-mhsa has: fp32\n" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["--precision", "int8"], ["--agreement"]])
def test_a_checkpoint_has_no_other_precision_to_score_or_to_agree_with(
    run_directory: Path, data: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    assert main([str(run_directory), "--data", str(data), *asked]) == 2
    assert "checkpoint is scored in fp32" in capsys.readouterr().err


def test_facts_are_not_asked_without_phrasings(
    run_directory: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(run_directory), "--cloze", str(data)])
    assert "--cloze and --patterns go together" in capsys.readouterr().err


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


def test_a_run_on_a_corpus_of_packages_is_scored_on_what_its_build_holds_out(
    tmp_path: Path,
    char_tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = {"name": "demo without wiki", "sha256": "0" * 64}
    run_of("mhsa", char_tokenizer, tmp_path / "run", corpus=corpus)
    assert main([str(tmp_path / "run")]) == 2
    assert "first: maskwright-corpus build demo" in capsys.readouterr().err
    words = ["".join(letters) for letters in product("abcdefgh", repeat=4)]  # digits are unknown
    lines = [f"{word} is one of many lines that are long enough" for word in words]
    place = tmp_path / "maskwright/corpora/demo"
    place.mkdir(parents=True)
    (place / "wiki.txt").write_text("".join(f"{line}\n" for line in lines))
    index = {"name": "demo", "missing": [], "sources": [{"name": "wiki", "licence": "none"}]}
    (place / "corpus.json").write_text(json.dumps(index))
    held_out = [line for line in lines if is_held_out(line)]
    assert main([str(tmp_path / "run"), "--draws", "1", "--length", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["held_out"]["fixed"]
    n_windows = sum(len(line) + 1 for line in held_out) // 8
    assert (
        found["n_masked"] == (np.random.default_rng(20240).random((1, n_windows, 8)) < 0.15).sum()
    )
