"""The command that puts runs and artefacts side by side."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from export.compare import compare, main, table
from export.subject import load_subject
from model.checkpoint import save_checkpoint
from model.corpus import shipped
from model.mixers import MIXERS
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(shipped().text[:4000])
    return path


@pytest.fixture
def run_of(tmp_path: Path, char_tokenizer: Tokenizer) -> Callable[..., Path]:
    """Gives the directory of an untrained run; `fields` change its encoder."""

    def make(name: str, *, mixer: str = "mhsa", **fields: object) -> Path:
        encoder = random_encoder(mixer, vocab_size=char_tokenizer.vocab_size, **fields)
        summary = {"n_parameters": 1234, "step": 5, "cost": {"cpu_seconds": 6789.0}}
        save_checkpoint(tmp_path / name, encoder=encoder, tokenizer=char_tokenizer, summary=summary)
        return tmp_path / name

    return make


def test_both_mixers_stand_side_by_side_in_a_table_and_a_plot(
    tmp_path: Path, data: Path, run_of: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(run_of(f"of-{mixer}", mixer=mixer)) for mixer in MIXERS]
    plot = tmp_path / "both.png"
    assert main([*runs, "--data", str(data), "--length", "8", "--plot", str(plot)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for said in (*MIXERS, "of-mhsa", "of-mlp_mixer", "1,234", "6,789", "loss, windows of 8"):
        assert said in out
    for n_tokens in (8, 16, 32):
        assert f"forward, tokens/s at {n_tokens} " in out
        assert f"loss at {n_tokens} tokens" in out
    assert out.splitlines()[-1] == f"wrote {plot}"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_two_of_one_mixer_have_a_column_each_and_a_dash_for_what_is_not_known(
    data: Path, run_of: Callable[..., Path]
) -> None:
    subjects = [load_subject(run_of(name)) for name in ("one", "other")]
    subjects[1] = replace(subjects[1], training={})
    compared = compare(subjects, data=[data], length=8)
    assert compared[0].scores == compared[1].scores
    assert all(speed > 0 for one in compared for speed in one.speed.values())
    first, *columns = (list(column.cells) for column in table(compared).columns)
    assert [column[first.index("mixer")] for column in columns] == ["mhsa", "mhsa"]
    assert [column[first.index("parameters")] for column in columns] == ["1,234", "-"]


@pytest.mark.parametrize("longest", [[16, 32], [32, 16]])
def test_encoders_of_different_lengths_are_scored_on_the_same_windows(
    data: Path, run_of: Callable[..., Path], longest: list[int]
) -> None:
    subjects = [load_subject(run_of(str(n), max_tokens=n)) for n in longest]
    compared = compare(subjects, data=[data])
    assert [c.scores.length for c in compared] == [16, 16]
    assert [list(c.speed) for c in compared] == [[8, 16], [8, 16]]
    first, *columns = (list(column.cells) for column in table(compared).columns)
    at_32 = [column[first.index("loss at 32 tokens")] for column in columns]
    assert [cell == "-" for cell in at_32] == [n == 16 for n in longest]


@pytest.mark.parametrize(
    "wrong", [["--length", "33"], ["--data", "none"], ["--plot", "none/at/all.png"]]
)
def test_what_cannot_be_compared_is_said_in_one_line(
    tmp_path: Path,
    data: Path,
    run_of: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wrong: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # where no plot is to be left
    assert main(["--data", str(data), *wrong, "--", str(run_of("run"))]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maskwright-compare: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.png"))


def test_what_is_no_run_and_no_artefact_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert "none" in said
    assert said.count("\n") == 1
