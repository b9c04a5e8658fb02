"""What a run leaves for its reader."""

import json
from pathlib import Path

import pytest

from model.evaluate import Score
from model.report import Record, plot_losses, write_report

PNG = b"\x89PNG\r\n\x1a\n"


def record() -> Record:
    made = Record(train=[(10, 3.5), (20, 3.0)], n_tokens=640)
    made.held_out.append((20, Score(loss=3.25, accuracy=0.125, n_masked=80)))
    return made


def test_the_report_has_the_summary_and_both_curves(tmp_path: Path) -> None:
    write_report(tmp_path, record(), {"step": 20, "seed": 1})
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "step": 20,
        "seed": 1,
        "train_curve": [[10, 3.5], [20, 3.0]],
        "held_out_curve": [[20, {"loss": 3.25, "accuracy": 0.125, "n_masked": 80}]],
    }
    assert (tmp_path / "loss.png").read_bytes().startswith(PNG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loss.png", "report.json"]


@pytest.mark.parametrize("missing", ["train", "held_out"])
def test_a_run_without_one_of_its_curves_is_plotted(tmp_path: Path, missing: str) -> None:
    made = record()
    getattr(made, missing).clear()
    plot_losses(tmp_path / "loss.png", made, title="a run")
    assert (tmp_path / "loss.png").read_bytes().startswith(PNG)


def test_the_cost_counts_tokens_and_seconds() -> None:
    made = record()
    cost = made.cost()
    assert cost["n_tokens"] == 640
    assert cost["tokens_per_second"] > 0
    assert cost.keys() == {"n_tokens", "wall_seconds", "cpu_seconds", "tokens_per_second"}
    assert 0 < made.wall_seconds < 60


def test_the_speed_is_that_of_the_whole_run() -> None:
    made = record()
    before = made.n_tokens / made.wall_seconds
    found = made.tokens_per_second
    # Time only goes on between the three readings.
    assert before >= found >= made.n_tokens / made.wall_seconds
