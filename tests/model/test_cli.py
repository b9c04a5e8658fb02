"""The command `maskwright-train`: flags, files, signals, resuming and several processes."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.checkpoint import FILE_NAME, load_checkpoint
from model.cli import main
from model.corpus import shipped
from model.feedforward import FEEDFORWARDS
from model.mixers import MIXERS
from model.tokenizer import TRAINERS
from tests.model.conftest import InterruptingStream

FILES = ["README.md", FILE_NAME, "loss.png", "report.json"]
every_mixer = pytest.mark.parametrize("mixer", MIXERS)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(shipped().text[:6000])
    return path


def command(text_file: Path, out: Path, *more: str, steps: int = 2) -> list[str]:
    fixed = ["--preset", "tiny", "--threads", "1", "--steps", str(steps), "--seed", "3"]
    return [*fixed, "--text", str(text_file), "--out", str(out), *more]


@every_mixer
def test_the_command_trains_each_mixer_on_a_file(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], mixer: str
) -> None:
    out = tmp_path / "run"
    assert main(command(text_file, out, "--mixer", mixer)) == 0
    assert names(out) == FILES
    saved = load_checkpoint(out)
    assert saved.config.mixer == mixer
    assert saved.summary["corpus"]["name"] == "text.txt"
    assert saved.summary["seed"] == 3
    said = capsys.readouterr().out
    assert said.startswith("step 2: held-out loss ")
    assert f"wrote {out}; export it with: maskwright-export {out} DIRECTORY" in said


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_command_trains_with_each_tokenizer(text_file: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "run"
    assert main(command(text_file, out, "--tokenizer", kind, "--vocab-size", "300")) == 0
    saved = load_checkpoint(out)
    assert saved.tokenizer.kind == kind
    assert saved.config.vocab_size == saved.tokenizer.vocab_size
    assert kind == "char" or saved.tokenizer.vocab_size == 300
    assert saved.config.tied_head == (kind != "char")
    assert saved.summary["held_out"]["length"] == 32 - saved.tokenizer.n_wrap
    assert math.isfinite(saved.summary["held_out"]["loss"])


def test_the_tokenizer_of_the_command_is_trained_on_the_training_text_only(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be " * 300 + "zyzzyva " * 60)
    assert main(command(path, tmp_path / "run", "--tokenizer", "wordpiece")) == 0
    saved = load_checkpoint(tmp_path / "run")
    assert len(saved.tokenizer.target_ids("be")) == 1
    assert saved.tokenizer.target_ids("z") == ()


@pytest.mark.slow
def test_the_command_trains_another_size(text_file: Path, tmp_path: Path) -> None:
    assert main(command(text_file, tmp_path / "run", "--size", "small", steps=1)) == 0
    assert load_checkpoint(tmp_path / "run").config.d_model == 128


@pytest.mark.parametrize("activation", FEEDFORWARDS)
def test_the_command_takes_another_activation_norm_and_dropout(
    text_file: Path, tmp_path: Path, activation: str
) -> None:
    more = ("--activation", activation, "--dropout", "0.25", "--norm", "layer")
    assert main(command(text_file, tmp_path / "run", *more, steps=1)) == 0
    config = load_checkpoint(tmp_path / "run").config
    assert (config.activation, config.dropout, config.norm) == (activation, 0.25, "layer")


def test_a_setting_out_of_its_range_is_said_in_one_line(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(text_file, tmp_path / "run", "--dropout", "1")) == 2
    assert capsys.readouterr().err == "maskwright-train: dropout=1.0; at least 0 and below 1\n"


def test_an_interrupted_command_leaves_its_files_returns_130_and_is_resumed(
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", InterruptingStream())
        # The first line on stderr tells the score at step 30.
        assert main(command(text_file, out, steps=60)) == 130
    assert names(out) == FILES
    assert load_checkpoint(out).summary["step"] == 30
    said = capsys.readouterr().out
    assert said.startswith("step 30: held-out loss ")
    assert f"go on with: maskwright-train --resume {out}" in said
    assert main(["--resume", str(out), "--threads", "1"]) == 0
    assert main(command(text_file, tmp_path / "whole", steps=60)) == 0
    curves = [
        json.loads((tmp_path / name / "report.json").read_text())["train_curve"]
        for name in ("run", "whole")
    ]
    assert curves[0] == curves[1]


def test_an_interrupt_while_the_end_is_scored_leaves_a_finished_run(
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first line on stderr tells of the last step, after which the run is scored.
    monkeypatch.setattr("sys.stderr", InterruptingStream())
    assert main(command(text_file, tmp_path / "run", "--eval-every", "30", steps=30)) == 0
    assert "export it with" in capsys.readouterr().out


def test_a_run_is_not_resumed_on_another_text(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    unfinished = [*command(text_file, out, steps=60), "--checkpoint-every", "20"]
    with subprocess.Popen([sys.executable, "-m", "model.cli", *unfinished]) as process:
        while not (out / FILE_NAME).exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    text_file.write_text(shipped().text[6000:12000])
    assert main(["--resume", str(out)]) == 2
    assert "the run's corpus is" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(text_file: Path, tmp_path: Path) -> None:
    more = ("--optimizer", "adamw", "--log-every", "1")
    arguments = command(text_file, tmp_path / "two", *more, steps=20)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, "-m", "model.cli", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out loss") == 1
    assert main(command(text_file, tmp_path / "one", *more, steps=20)) == 0
    curves = [
        json.loads((tmp_path / name / "report.json").read_text())["train_curve"]
        for name in ("one", "two")
    ]
    for (_, one), (_, two) in zip(*curves, strict=True):
        assert two == pytest.approx(one, abs=1e-6)


@pytest.mark.slow
def test_compiled_blocks_learn_what_written_ones_learn(text_file: Path, tmp_path: Path) -> None:
    more = ("--log-every", "1", "--row-lengths", "16")
    # In a process of its own: shapes that are checked cannot be compiled.
    arguments = command(text_file, tmp_path / "on", *more, "--compile", "on", steps=5)
    subprocess.run([sys.executable, "-m", "model.cli", *arguments], check=True)
    assert main(command(text_file, tmp_path / "off", *more, "--compile", "off", steps=5)) == 0
    curves = [
        json.loads((tmp_path / name / "report.json").read_text())["train_curve"]
        for name in ("off", "on")
    ]
    for (_, written), (_, compiled_loss) in zip(*curves, strict=True):
        assert compiled_loss == pytest.approx(written, abs=1e-4)


@pytest.mark.parametrize("text", [None, b"", b"caf\xe9", b"too short"])
def test_a_command_that_cannot_train_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes | None
) -> None:
    path = tmp_path / "text.txt"
    if text is not None:
        path.write_bytes(text)
    assert main(command(path, tmp_path / "run")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maskwright-train: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments", [["--mixer", "mlpp"], ["--preset", "huge"], ["--steps", "many"]]
)
def test_a_wrong_flag_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"argument {arguments[0]}: " in capsys.readouterr().err
