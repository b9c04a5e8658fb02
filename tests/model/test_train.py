"""Training: the files a run leaves, what a seed decides, interruptions, and what goes wrong."""

import dataclasses
import json
import math
import re
import resource
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
import torch

from model.checkpoint import FILE_NAME, load_checkpoint
from model.corpus import Corpus
from model.devices import Workers
from model.evaluate import held_out_score
from model.mixers import MIXERS
from model.optimizer import OPTIMIZERS
from model.report import Record
from model.train import Diverged, Run, Training, train

FILES = ["README.md", FILE_NAME, "loss.png", "report.json"]
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


def stopped_at(run: Run, out: Path, *, at: int, resume: bool = False) -> Record:
    """Train until step `at`, as Ctrl-C there ends it."""
    stop = Event()

    def tell(step: int, record: Record) -> None:
        if step == at:
            stop.set()

    checkpoint = load_checkpoint(out) if resume else None
    return train(run, out, tell=tell, stop=stop, resume=checkpoint)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_an_interrupt_leaves_the_same_files_and_the_step_that_was_reached(
    tiny_run: Callable[..., Run], tmp_path: Path, at: int
) -> None:
    run = tiny_run()
    record = stopped_at(run, tmp_path, at=at)
    assert names(tmp_path) == FILES
    saved = load_checkpoint(tmp_path)
    assert saved.summary["step"] == record.held_out[-1][0] == at
    ids = run.tokenizer.encode_corpus(run.corpus.held_out())
    score = held_out_score(saved.encoder, ids, tokenizer=saved.tokenizer, length=8)
    assert score == record.held_out[-1][1]


@pytest.mark.parametrize(("mixer", "optimizer"), [("mhsa", "muon"), ("mlp_mixer", "adamw")])
def test_a_run_that_is_interrupted_and_resumed_ends_as_one_that_is_not(
    tiny_run: Callable[..., Run], tmp_path: Path, mixer: str, optimizer: str
) -> None:
    run = tiny_run(mixer=mixer, optimizer=optimizer, steps=9, log_every=2)
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, dropout=0.1))
    whole = train(run, tmp_path / "whole")
    stopped_at(run, tmp_path / "cut", at=2)
    stopped_at(run, tmp_path / "cut", at=6, resume=True)
    resumed = train(run, tmp_path / "cut", resume=load_checkpoint(tmp_path / "cut"))
    for name in ("train", "held_out", "samples", "n_tokens"):
        assert getattr(resumed, name) == getattr(whole, name)
    weights = [
        load_checkpoint(tmp_path / name).encoder.state_dict().values() for name in ("whole", "cut")
    ]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_a_periodic_checkpoint_goes_on_like_one_of_an_interrupt(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = tiny_run(steps=7, checkpoint_every=3)
    killed = Training(run, tmp_path / "cut", workers=Workers(), tokens=None)
    for _ in range(5):
        killed.take_step()
        killed.look(lambda step, record: None)
    saved = load_checkpoint(tmp_path / "cut")
    assert saved.summary["step"] == 3
    resumed = train(run, tmp_path / "cut", resume=saved)
    assert resumed.train == train(run, tmp_path / "whole").train


def test_a_finished_run_keeps_no_training_state_and_is_not_resumed(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = tiny_run(steps=2)
    train(run, tmp_path)
    saved = load_checkpoint(tmp_path)
    assert not saved.state
    with pytest.raises(ValueError, match="the run is finished"):
        train(run, tmp_path, resume=saved)


@pytest.mark.parametrize("what", [{"seed": 1}, {"lr": 0.5}])
def test_another_run_does_not_go_on_from_a_checkpoint(
    tiny_run: Callable[..., Run], tmp_path: Path, what: dict[str, object]
) -> None:
    stopped_at(tiny_run(), tmp_path, at=2)
    with pytest.raises(ValueError, match="it goes on as it began"):
        train(tiny_run(**what), tmp_path, resume=load_checkpoint(tmp_path))


def test_what_a_killed_write_left_is_swept_when_the_run_goes_on(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = tiny_run()
    stopped_at(run, tmp_path, at=2)
    (tmp_path / f".{FILE_NAME}.123.part").write_bytes(b"half a checkpoint")
    train(run, tmp_path, resume=load_checkpoint(tmp_path))
    assert names(tmp_path) == FILES


@every_mixer
def test_a_step_in_parts_learns_what_it_learns_at_once(
    tiny_run: Callable[..., Run], tmp_path: Path, mixer: str
) -> None:
    one, parts = (
        train(tiny_run(mixer=mixer, optimizer="adamw", accumulate=n), tmp_path) for n in (1, 3)
    )
    for (_, whole), (_, summed) in zip(one.train, parts.train, strict=True):
        assert summed == pytest.approx(whole, rel=1e-5)  # float32 sums in another order


def test_a_budget_of_seconds_ends_the_run(tiny_run: Callable[..., Run], tmp_path: Path) -> None:
    record = train(tiny_run(steps=1_000_000, seconds=0.3, compile="off"), tmp_path)
    assert 0.3 <= record.step_seconds < 10
    assert 0 < record.held_out[-1][0] < 1_000_000
    assert not load_checkpoint(tmp_path).state


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = tiny_run(optimizer="adamw", lr=1e30, warmup_steps=0, checkpoint_every=1, steps=50)
    with pytest.raises(Diverged) as caught:
        train(run, tmp_path)
    said = str(caught.value)
    assert re.match(r"step \d+: loss .*, gradient norm .*, on 8 rows of 8 tokens \(seed 0, ", said)
    step = int(said.split(":")[0].removeprefix("step "))
    assert f"the last good checkpoint is of step {step - 1}: {tmp_path / FILE_NAME}" in said
    assert load_checkpoint(tmp_path).summary["step"] == step - 1


def test_a_full_disk_ends_the_run_with_the_last_good_checkpoint_whole(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    training = Training(tiny_run(), tmp_path, workers=Workers(), tokens=None)
    training.take_step()
    training.save()
    training.take_step()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match=rf"{FILE_NAME} cannot be written \(.* MiB\): File too"):
            training.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_checkpoint(tmp_path).summary["step"] == 1


def test_rows_too_few_for_the_parts_are_refused(
    tiny_run: Callable[..., Run], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="gives 8 rows of 8; 9 parts need one each"):
        train(tiny_run(accumulate=9), tmp_path)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"eval_length": 300}, "windows of 300"), ({"row_lengths": (2000,)}, "a row takes 2000")],
)
def test_what_cannot_end_well_is_refused_before_the_first_step(
    tiny_run: Callable[..., Run], tmp_path: Path, fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        train(tiny_run(**fields), tmp_path / "run")
    assert not (tmp_path / "run").exists()
