"""What a run leaves for its reader: the record of its losses, a JSON report and a plot."""

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.evaluate import Score
from model.files import write_atomically


@dataclass
class Record:
    """The losses of a run as it goes, and what it cost; it survives interruptions.

    Attributes:
        train: (step, mean training loss since the last point), in nats.
        held_out: (step, score on the first held-out windows); the last one is on all of them.
        samples: (step, a held-out window with its masks filled in; see `model.samples`).
        sentences: (step, mean sentence loss since the last point), of the stage of embeddings.
        likeness: (step, Spearman's correlation times 100 of sentence vectors), of that stage.
        n_tokens: Tokens trained on.
        step_seconds: Time spent in steps; evaluations and checkpoints come on top.
        recent: Sum of the losses since the last point of `train`.
        recent_sentences: The same of `sentences`.
        complete: Whether the budget was used up, known once the run has ended.
    """

    train: list[tuple[int, float]] = field(default_factory=list)
    held_out: list[tuple[int, Score]] = field(default_factory=list)
    samples: list[tuple[int, str]] = field(default_factory=list)
    sentences: list[tuple[int, float]] = field(default_factory=list)
    likeness: list[tuple[int, float]] = field(default_factory=list)
    n_tokens: int = 0
    step_seconds: float = 0.0
    recent: float = 0.0
    recent_sentences: float = 0.0
    complete: bool = False
    _wall_before: float = 0.0
    _cpu_before: float = 0.0
    _wall_start: float = field(default_factory=time.perf_counter)
    _cpu_start: float = field(default_factory=time.process_time)

    @property
    def wall_seconds(self) -> float:
        """Time that the run took so far, pauses between its processes not counted."""
        return self._wall_before + time.perf_counter() - self._wall_start

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the first process so far."""
        return self._cpu_before + time.process_time() - self._cpu_start

    @property
    def tokens_per_second(self) -> float:
        """Mean over the run's steps."""
        return self.n_tokens / max(self.step_seconds, 1e-9)

    def cost(self) -> dict[str, Any]:
        """Tokens, seconds and CPU-seconds so far."""
        return {
            "n_tokens": self.n_tokens,
            "wall_seconds": round(self.wall_seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "step_seconds": round(self.step_seconds, 1),
            "tokens_per_second": round(self.tokens_per_second),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, to go on from later."""
        return {
            "train": [*self.train],
            "held_out": [(step, dataclasses.asdict(score)) for step, score in self.held_out],
            "samples": [*self.samples],
            "sentences": [*self.sentences],
            "likeness": [*self.likeness],
            "n_tokens": self.n_tokens,
            "step_seconds": self.step_seconds,
            "recent": self.recent,
            "recent_sentences": self.recent_sentences,
            "_wall_before": self.wall_seconds,
            "_cpu_before": self.cpu_seconds,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Record":
        """The reverse of `to_json`; the clocks go on from where they stood."""
        curves = {
            "train": [(step, loss) for step, loss in fields["train"]],
            "held_out": [(step, Score(**score)) for step, score in fields["held_out"]],
            "samples": [(step, text) for step, text in fields["samples"]],
            "sentences": [(step, loss) for step, loss in fields.get("sentences", [])],
            "likeness": [(step, found) for step, found in fields.get("likeness", [])],
        }
        return cls(**fields | curves)


def write_report(directory: Path, record: Record, summary: dict[str, Any]) -> None:
    """Write `report.json` and `loss.png` of a run."""
    report = summary | {
        "train_curve": record.train,
        "held_out_curve": [(step, dataclasses.asdict(score)) for step, score in record.held_out],
        "samples": record.samples,
    }
    if record.sentences:
        report["sentence_curve"] = record.sentences
    if record.likeness:
        report["likeness_curve"] = record.likeness
    write_atomically(directory / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    plot_losses(directory / "loss.png", record, title=str(directory.name))


def plot_losses(path: Path, record: Record, *, title: str) -> None:
    """A plot of training and held-out loss, and of held-out top-1 and top-5, over steps."""
    import matplotlib as mpl  # a second to import, and needed once

    mpl.use("Agg")  # no display
    from matplotlib import pyplot

    figure, (losses, shares) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    if record.train:
        steps, values = zip(*record.train, strict=True)
        losses.plot(steps, values, color="0.7", linewidth=1, label="training (its own mask rate)")
    if record.held_out:
        at = [step for step, _ in record.held_out]
        scores = [score for _, score in record.held_out]
        losses.plot(at, [score.loss for score in scores], "o-", markersize=4, label="held out")
        losses.annotate(f"{scores[-1].loss:.3f}", (at[-1], scores[-1].loss), (0, 6), **_OFFSET)
        for name, label in (("accuracy", "top-1"), ("top5", "top-5")):
            reached = [getattr(score, name) for score in scores]
            shares.plot(at, reached, "o-", markersize=4, label=label)
            shares.annotate(f"{reached[-1]:.3f}", (at[-1], reached[-1]), (0, 6), **_OFFSET)
    losses.set(title=title, xlabel="step", ylabel="loss, nats per masked token")
    shares.set(title="held out, 15 % masked", xlabel="step", ylabel="share of masked tokens")
    shares.set_ylim(0, 1)
    # Fixed places: looking for the best one takes long on a slow machine, and then warns.
    for axes, where in ((losses, "upper right"), (shares, "upper left")):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(loc=where)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


_OFFSET: dict[str, Any] = {"textcoords": "offset points", "ha": "right"}


class TensorBoard:
    """The same curves as TensorBoard logs.

    Raises:
        ValueError: TensorBoard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            raise ValueError(
                "--tensorboard needs TensorBoard: pip install 'maskwright[tensorboard]'"
            ) from None
        self._writer = SummaryWriter(str(directory))

    def tell(self, step: int, record: Record, scored: Sequence[tuple[int, Score, str]]) -> None:
        """Write the newest training loss, and `scored`: (step, score, sample) of what is new."""
        self._writer.add_scalar("loss/training", record.train[-1][1], step)
        self._writer.add_scalar("tokens_per_second", record.tokens_per_second, step)
        for at, score, sample in scored:
            self._writer.add_scalar("loss/held_out", score.loss, at)
            self._writer.add_scalar("held_out/top1", score.accuracy, at)
            self._writer.add_scalar("held_out/top5", score.top5, at)
            self._writer.add_text("filled", sample, at)

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()
