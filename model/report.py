"""What a run leaves for its reader: the record of its losses, a JSON report and a plot."""

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.checkpoint import write_atomically
from model.evaluate import Score


@dataclass
class Record:
    """The losses of a run as it goes, and what it cost.

    Attributes:
        train: (step, mean training loss since the last point), in nats.
        held_out: (step, score on the first held-out windows); the last one is on all of them.
        n_tokens: Tokens trained on.
    """

    train: list[tuple[int, float]] = field(default_factory=list)
    held_out: list[tuple[int, Score]] = field(default_factory=list)
    n_tokens: int = 0
    _wall_start: float = field(default_factory=time.perf_counter)
    _cpu_start: float = field(default_factory=time.process_time)

    @property
    def wall_seconds(self) -> float:
        """Time since the run began."""
        return time.perf_counter() - self._wall_start

    @property
    def tokens_per_second(self) -> float:
        """Mean over the run, its evaluations included."""
        return self.n_tokens / self.wall_seconds

    def cost(self) -> dict[str, Any]:
        """Tokens, seconds and CPU-seconds so far."""
        return {
            "n_tokens": self.n_tokens,
            "wall_seconds": round(self.wall_seconds, 1),
            "cpu_seconds": round(time.process_time() - self._cpu_start, 1),
            "tokens_per_second": round(self.tokens_per_second),
        }


def write_report(directory: Path, record: Record, summary: dict[str, Any]) -> None:
    """Write `report.json` and `loss.png` of a run."""
    report = summary | {
        "train_curve": record.train,
        "held_out_curve": [(step, dataclasses.asdict(score)) for step, score in record.held_out],
    }
    write_atomically(directory / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    plot_losses(directory / "loss.png", record, title=str(directory.name))


def plot_losses(path: Path, record: Record, *, title: str) -> None:
    """A plot of training and held-out loss over steps."""
    import matplotlib as mpl  # a second to import, and needed once

    mpl.use("Agg")  # no display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    if record.train:
        steps, losses = zip(*record.train, strict=True)
        axes.plot(steps, losses, color="0.6", linewidth=1, label="training (its own mask rate)")
    if record.held_out:
        *on_the_way, (last, final) = record.held_out
        at = [step for step, _ in on_the_way]
        reached = [score.loss for _, score in on_the_way]
        axes.plot(at, reached, "o-", label="held out, 15 % masked, first windows")
        axes.plot([last], [final.loss], "*", label=f"held out, all windows: {final.loss:.3f}")
    axes.set(title=title, xlabel="step", ylabel="loss, nats per masked token")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
