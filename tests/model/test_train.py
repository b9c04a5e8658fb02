"""Training: the files a run leaves, what a seed decides, interrupts, and the command."""

import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from model.checkpoint import FILE_NAME, load_checkpoint
from model.corpus import Corpus, shipped
from model.evaluate import held_out_score
from model.feedforward import FEEDFORWARDS
from model.mixers import MIXERS
from model.optimizer import OPTIMIZERS
from model.report import Record
from model.tokenizer import TRAINERS
from model.train import Run, main, train

FILES = [FILE_NAME, "loss.png", "report.json"]
every_mixer = pytest.mark.parametrize("mixer", MIXERS)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@every_mixer
def test_a_run_leaves_a_checkpoint_a_report_and_a_plot(
    tiny_run: Callable[..., Run], tmp_path: Path, mixer: str
) -> None:
    record = train(tiny_run(mixer=mixer), tmp_path / "run")
    assert names(tmp_path / "run") == FILES
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    summary = load_checkpoint(tmp_path / "run").summary
    assert {name: report[name] for name in summary} == summary
    assert [step for step, _ in record.train] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in report["held_out_curve"]] == [4, 6]


def test_the_summary_says_what_was_trained_on_what(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = tiny_run(seed=5)
    train(run, tmp_path)
    summary = load_checkpoint(tmp_path).summary
    assert (summary["step"], summary["seed"]) == (6, 5)
    assert summary["corpus"] == {
        "name": "excerpt",
        "sha256": run.corpus.sha256,
        "n_characters": 2000,
        "licence": "public domain",
    }
    assert summary["recipe"]["steps"] == 6
    assert summary["cost"]["n_tokens"] == 6 * 64
    assert summary["held_out"]["length"] == 8


@every_mixer
def test_the_last_score_is_that_of_the_saved_encoder(
    tiny_run: Callable[..., Run], tmp_path: Path, mixer: str
) -> None:
    run = tiny_run(mixer=mixer)
    record = train(run, tmp_path)
    saved = load_checkpoint(tmp_path)
    ids = run.tokenizer.encode_corpus(run.corpus.split()[1])
    score = held_out_score(saved.encoder, ids, tokenizer=saved.tokenizer, length=8)
    assert score == record.held_out[-1][1]


@every_mixer
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_same_seed_gives_the_same_losses_and_weights(
    tiny_run: Callable[..., Run], tmp_path: Path, mixer: str, optimizer: str
) -> None:
    run = tiny_run(mixer=mixer, optimizer=optimizer, steps=3)
    one, other = train(run, tmp_path / "one"), train(run, tmp_path / "other")
    assert one.train == other.train
    assert one.held_out == other.held_out
    weights = [
        load_checkpoint(tmp_path / name).encoder.state_dict().values() for name in ("one", "other")
    ]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_another_seed_gives_other_losses(tiny_run: Callable[..., Run], tmp_path: Path) -> None:
    one, other = (train(tiny_run(seed=seed, steps=2), tmp_path) for seed in (0, 1))
    assert all(a != b for (_, a), (_, b) in zip(one.train, other.train, strict=True))


@pytest.mark.slow
@every_mixer
def test_the_loss_falls_well_below_that_of_the_letters_frequencies(
    tiny_run: Callable[..., Run], tmp_path: Path, mixer: str
) -> None:
    # A text of one line: what stands where can be learnt by heart in some tens of steps.
    run = tiny_run(mixer=mixer, steps=80, batch_tokens=256, log_every=10, eval_every=100)
    run = dataclasses.replace(run, corpus=Corpus("line", "to be or not " * 60, "none"))
    record = train(run, tmp_path)
    text = run.corpus.text
    shares = [text.count(character) / len(text) for character in set(text)]
    entropy = -sum(share * math.log(share) for share in shares)
    assert record.train[0][1] > entropy
    assert record.train[-1][1] < entropy / 2
    assert record.held_out[-1][1].loss < entropy / 2


def interrupt_at(at: int) -> Callable[[int, Record], None]:
    def tell(step: int, record: Record) -> None:
        if step == at:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize("at", [1, 3, 5])
def test_an_interrupt_leaves_the_same_files_and_the_step_that_was_reached(
    tiny_run: Callable[..., Run], tmp_path: Path, at: int
) -> None:
    run = tiny_run()
    record = train(run, tmp_path, tell=interrupt_at(at))
    assert names(tmp_path) == FILES
    saved = load_checkpoint(tmp_path)
    assert saved.summary["step"] == record.held_out[-1][0] == at
    ids = run.tokenizer.encode_corpus(run.corpus.split()[1])
    score = held_out_score(saved.encoder, ids, tokenizer=saved.tokenizer, length=8)
    assert score == record.held_out[-1][1]


def test_until_an_interrupt_a_run_goes_as_it_would_without(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    stopped = train(tiny_run(), tmp_path, tell=interrupt_at(5))
    whole = train(tiny_run(), tmp_path)
    assert stopped.train == whole.train[:5]
    assert stopped.held_out[0] == whole.held_out[0]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"eval_length": 300}, "windows of 300"), ({"row_lengths": (2000,)}, "a row takes 2000")],
)
def test_what_cannot_end_well_is_refused_before_the_first_step(
    tiny_run: Callable[..., Run], tmp_path: Path, fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        train(tiny_run(**fields), tmp_path / "run", tell=interrupt_at(1))
    assert not (tmp_path / "run").exists()


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
    assert saved.tokenizer.single_id("be") is not None
    assert saved.tokenizer.single_id("z") is None


@pytest.mark.slow
def test_the_command_trains_another_size(text_file: Path, tmp_path: Path) -> None:
    assert main(command(text_file, tmp_path / "run", "--size", "small", steps=1)) == 0
    assert load_checkpoint(tmp_path / "run").config.d_model == 128


@pytest.mark.parametrize("activation", FEEDFORWARDS)
def test_the_command_takes_another_activation_and_dropout(
    text_file: Path, tmp_path: Path, activation: str
) -> None:
    more = ("--activation", activation, "--dropout", "0.25")
    assert main(command(text_file, tmp_path / "run", *more, steps=1)) == 0
    config = load_checkpoint(tmp_path / "run").config
    assert (config.activation, config.dropout) == (activation, 0.25)


def test_a_setting_out_of_its_range_is_said_in_one_line(
    text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(text_file, tmp_path / "run", "--dropout", "1")) == 2
    assert capsys.readouterr().err == "maskwright-train: dropout=1.0; at least 0 and below 1\n"


class InterruptingStream(io.StringIO):
    """A terminal whose user presses Ctrl-C at the first line."""

    def write(self, text: str) -> int:
        if not self.getvalue():
            super().write(text)
            raise KeyboardInterrupt
        return super().write(text)


def test_an_interrupted_command_leaves_its_files_and_returns_130(
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, terminal = tmp_path / "run", InterruptingStream()
    monkeypatch.setattr("sys.stderr", terminal)
    # The first line on stderr tells the score at step 30, at the next point of the curve.
    assert main(command(text_file, out, steps=60)) == 130
    assert terminal.getvalue().startswith("step 30: training loss ")
    assert names(out) == FILES
    assert load_checkpoint(out).summary["step"] == 35
    assert capsys.readouterr().out.startswith("step 35: held-out loss ")


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
