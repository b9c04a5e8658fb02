"""What a run leaves for its reader."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model.evaluate import Score
from model.report import Record, TensorBoard, plot_losses, write_report

PNG = b"\x89PNG\r\n\x1a\n"


def record() -> Record:
    made = Record(train=[(10, 3.5), (20, 3.0)], n_tokens=640)
    made.held_out.append((20, Score(loss=3.25, accuracy=0.125, n_masked=80, top5=0.5)))
    made.samples.append((20, "to [b]e"))
    return made


def test_the_report_has_the_summary_and_both_curves(tmp_path: Path) -> None:
    write_report(tmp_path, record(), {"step": 20, "seed": 1})
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "step": 20,
        "seed": 1,
        "train_curve": [[10, 3.5], [20, 3.0]],
        "samples": [[20, "to [b]e"]],
        "held_out_curve": [[20, {"loss": 3.25, "accuracy": 0.125, "n_masked": 80, "top5": 0.5}]],
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
    made.step_seconds = 2.0
    cost = made.cost()
    assert (cost["n_tokens"], cost["step_seconds"], cost["tokens_per_second"]) == (640, 2.0, 320)
    assert 0 <= cost["cpu_seconds"] < 60
    assert 0 <= made.wall_seconds < 60


def test_a_record_survives_json_and_its_clocks_go_on() -> None:
    made = record()
    made.step_seconds, made.recent = 2.0, 0.1 + 0.2
    fields = json.loads(json.dumps(made.to_json()))
    again = Record.from_json(fields | {"_wall_before": 100.0, "_cpu_before": 50.0})
    for name in ("train", "held_out", "samples", "n_tokens", "step_seconds", "recent"):
        assert getattr(again, name) == getattr(made, name)
    assert again.wall_seconds >= 100
    assert again.cpu_seconds >= 50


def test_tensorboard_reads_each_figure_at_its_step_and_each_score_once(tmp_path: Path) -> None:
    made = record()
    board = TensorBoard(tmp_path)
    board.tell(20, made, [(at, score, "to [b]e") for at, score in made.held_out])
    made.train.append((30, 2.5))
    board.tell(30, made, [])
    board.close()
    logs = EventAccumulator(str(tmp_path)).Reload()
    points = {
        tag: [(point.step, point.value) for point in logs.Scalars(tag)]
        for tag in logs.Tags()["scalars"]
    }
    assert points.pop("tokens_per_second")[0][0] == 20
    assert points == {
        "loss/training": [(20, 3.0), (30, 2.5)],
        "loss/held_out": [(20, 3.25)],
        "held_out/top1": [(20, 0.125)],
        "held_out/top5": [(20, 0.5)],
    }
    (sample,) = logs.Tensors("filled/text_summary")
    assert sample.tensor_proto.string_val == [b"to [b]e"]
