"""`maskwright-train --stage embed`: from a run and a teacher or pairs to a run of the same kind."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from model.checkpoint import blended, load_checkpoint
from model.cli import main
from model.corpus import shipped
from tests.conftest import random_encoder
from tests.model.test_cli import InterruptingStream

PAIRS = [("to be or not", "or not to be", 5), ("a king", "the sea", 0), ("my lord", "my liege", 4)]


@pytest.fixture(scope="session")
def first_stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of word pieces; tests must not write to it."""
    root = tmp_path_factory.mktemp("first")
    (root / "text.txt").write_text(shipped().text[:20_000])
    steps = ["--preset", "tiny", "--threads", "1", "--steps", "2", "--seed", "3"]
    words = ["--tokenizer", "wordpiece", "--vocab-size", "300"]
    out = ["--text", str(root / "text.txt"), "--out", str(root / "run")]
    assert main([*steps, *words, *out]) == 0
    return root / "run"


@pytest.fixture
def sts(tmp_path: Path) -> Path:
    path = tmp_path / "sts.tsv"
    rows = [f"g\tf\ty\t0\t{score}\t{first}\t{second}\n" for first, second, score in PAIRS]
    path.write_text("".join(rows))
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def command(first_stage: Path, out: Path, *more: str, steps: int = 4) -> list[str]:
    fixed = ["--stage", "embed", "--from", str(first_stage), "--out", str(out), "--threads", "1"]
    small = ["--batch-tokens", "64", "--batch-sentences", "8", "--sentences", "60"]
    every = ["--steps", str(steps), "--log-every", "1", "--eval-every", "2", "--seed", "3"]
    return [*fixed, *small, *every, *more]


def report(out: Path) -> dict[str, object]:
    return json.loads((out / "report.json").read_text())


def test_the_stage_goes_on_from_a_run_and_leaves_one_with_both_losses_and_likeness(
    first_stage: Path,
    tiny_teacher: Path,
    sts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    lessons = ["--teacher", str(tiny_teacher), "--sts", str(sts)]
    assert main(command(first_stage, out, *lessons)) == 0
    said = capsys.readouterr().out
    assert "step 4: Spearman (times 100) " in said
    assert f"export it with: maskwright-export {out} DIRECTORY" in said
    before, after = load_checkpoint(first_stage), load_checkpoint(out)
    assert after.config == before.config
    assert after.tokenizer.to_json() == before.tokenizer.to_json()
    assert not torch.equal(after.encoder.embedding.weight, before.encoder.embedding.weight)
    found = report(out)
    for name in ("train_curve", "sentence_curve"):
        assert [step for step, _ in found[name]] == [1, 2, 3, 4]
        assert all(math.isfinite(loss) for _, loss in found[name])
    for name in ("held_out_curve", "likeness_curve"):
        assert [step for step, _ in found[name]] == [0, 2, 4]
    assert found["embed"]["teacher"]["d"] == 16
    assert (found["embed"]["sentences"], found["embed"]["words"]) == (60, 12)
    assert found["embed"]["first_stage"]["held_out"] == before.summary["held_out"]


def test_the_stage_begins_with_the_weights_of_the_run(
    first_stage: Path, tiny_teacher: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    at_rest = ["--teacher", str(tiny_teacher), "--lr", "0", "--muon-lr", "0"]
    assert main(command(first_stage, out, *at_rest, steps=1)) == 0
    before, after = load_checkpoint(first_stage), load_checkpoint(out)
    weights = before.encoder.state_dict()
    assert all(torch.equal(weights[name], x) for name, x in after.encoder.state_dict().items())


@pytest.mark.parametrize("scored", [False, True])
def test_the_stage_learns_from_pairs_alone(first_stage: Path, tmp_path: Path, scored: bool) -> None:
    path = tmp_path / "pairs.tsv"
    columns = 3 if scored else 2
    path.write_text("".join("\t".join(map(str, row[:columns])) + "\n" for row in PAIRS * 3))
    out = tmp_path / "run"
    assert main(command(first_stage, out, "--pairs", str(path))) == 0
    assert report(out)["embed"]["pairs"]["scored"] is scored
    assert "teacher" not in report(out)["embed"]


def test_a_run_that_is_cut_and_resumed_ends_as_one_that_is_not(
    first_stage: Path,
    tiny_teacher: Path,
    sts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lessons = ["--teacher", str(tiny_teacher), "--sts", str(sts)]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(command(first_stage, whole, *lessons)) == 0
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", InterruptingStream())  # at the first score that is told
        assert main(command(first_stage, cut, *lessons)) == 130
    assert 0 < load_checkpoint(cut).summary["step"] < 4
    assert main(["--resume", str(cut), "--threads", "1"]) == 0
    one, other = (load_checkpoint(out).encoder.state_dict() for out in (whole, cut))
    assert all(torch.equal(one[name], other[name]) for name in one)
    for name in ("train_curve", "sentence_curve", "held_out_curve", "likeness_curve"):
        assert report(whole)[name] == report(cut)[name]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--teacher", "nobody"], "teacher='nobody'; a directory, or one of: minilm"),
        ([], "learns from --teacher, from --pairs, or from both"),
        (["--pairs", "none.tsv"], "none.tsv"),
        (["--teacher", ".", "--embed-weight", "0"], "weight=0.0; above 0"),
        (["--size", "base", "--vocab-size", "9"], "leave out: --vocab-size, --size"),
    ],
)
def test_a_stage_that_cannot_run_says_so_in_one_line(
    first_stage: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    said: str,
) -> None:
    assert main(command(first_stage, tmp_path / "run", *more)) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_lessons_are_refused_in_the_first_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", "run", "--teacher", "minilm"]) == 2
    assert capsys.readouterr().err == (
        "maskwright-train: --from, --teacher: for --stage embed only\n"
    )


def test_the_stage_can_begin_part_of_the_way_back_to_another_run(
    first_stage: Path, tiny_teacher: Path, tmp_path: Path
) -> None:
    tuned, out = tmp_path / "tuned", tmp_path / "run"
    lessons = ["--teacher", str(tiny_teacher)]
    assert main(command(first_stage, tuned, *lessons)) == 0
    back = ["--blend", str(first_stage), "0.25", "--muon-lr", "0", "--lr", "0"]  # it stays there
    assert main(command(tuned, out, *lessons, *back, steps=1)) == 0
    before, after, found = (
        load_checkpoint(path).encoder.state_dict() for path in (first_stage, tuned, out)
    )
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, 0.25 * before[name] + 0.75 * after[name])
    went_before = report(out)["embed"]["first_stage"]
    assert went_before["blend"] == {"run": first_stage.name, "share": 0.25}
    assert (went_before["step"], went_before["first_stage"]["step"]) == (4, 2)


def test_runs_of_another_shape_or_vocabulary_do_not_blend(first_stage: Path) -> None:
    checkpoint = load_checkpoint(first_stage)
    wider = dataclasses.replace(checkpoint, encoder=random_encoder("mhsa", vocab_size=11))
    with pytest.raises(ValueError, match="one vocabulary and one shape; these have not"):
        blended(checkpoint, wider, 0.5)
    with pytest.raises(ValueError, match=r"a share of 1\.5; from 0 to 1"):
        blended(checkpoint, checkpoint, 1.5)


def test_a_share_that_is_no_number_is_refused(
    first_stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blend = ["--stage", "embed", "--from", str(first_stage), "--blend", str(first_stage), "half"]
    assert main(blend) == 2
    assert "'half' is no number; from 0 to 1" in capsys.readouterr().err


def test_a_stage_without_a_run_to_go_on_from_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--stage", "embed", "--teacher", "minilm"]) == 2
    assert "name it with --from" in capsys.readouterr().err
