"""The command `maskwright-compare`: runs or artefacts side by side, as a table and a plot."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from export.score import Scores, evaluate
from export.subject import Subject, held_out_text, load_subject
from model.guesser import Guesser

ROUNDS, TOKENS_PER_ROUND = 7, 8192


@dataclass(frozen=True)
class Compared:
    """One of the compared.

    Attributes:
        speed: Tokens a CPU-second, forward, by length of the row.
    """

    subject: Subject
    scores: Scores
    speed: dict[int, float]


def compare(
    subjects: Sequence[Subject], *, data: Sequence[Path] | None, length: int | None = None
) -> list[Compared]:
    """Score each; then time all of them, one after another in each round, as machines drift."""
    if length is None:  # the same windows for all, or their losses say nothing of each other
        length = min(64, *(s.guesser.room for s in subjects))
    held_out = [s.guesser.tokenizer.encode_corpus(held_out_text(s, data)) for s in subjects]
    scores = [
        evaluate(s.guesser, ids, length=length) for s, ids in zip(subjects, held_out, strict=True)
    ]
    longest = min(s.guesser.max_tokens for s in subjects)
    lengths = sorted({n for n in (8, 16, 32, 64, 128, 256, 512) if n < longest} | {longest})
    speeds = [{n: 0.0 for n in lengths} for _ in subjects]
    for n_tokens in lengths:
        rounds = [[_speed(s.guesser, n_tokens) for s in subjects] for _ in range(ROUNDS)]
        for speed, found in zip(speeds, zip(*rounds, strict=True), strict=True):
            speed[n_tokens] = median(found)
    return [Compared(*row) for row in zip(subjects, scores, speeds, strict=True)]


def _speed(subject: Guesser, n_tokens: int) -> float:
    n_rows = max(1, TOKENS_PER_ROUND // n_tokens)
    ids = np.full((n_rows, n_tokens), subject.tokenizer.mask_id)
    positions = np.stack([np.arange(n_rows), np.zeros(n_rows, np.int64)], axis=1)
    wall, cpu = perf_counter(), process_time()
    subject.predict(ids, positions)
    # On a GPU the processor waits, and the clock tells.
    return n_rows * n_tokens / max(process_time() - cpu, perf_counter() - wall)


def table(compared: Sequence[Compared]) -> Table:
    """What differs, a column for each."""
    made = Table()
    made.add_column("")
    for one in compared:
        made.add_column(one.subject.name, justify="right")

    def row(name: str, *values: str) -> None:
        made.add_row(name, *values)

    row("mixer", *(c.subject.mixer for c in compared))
    row("parameters", *(_figure(c.subject.training.get("n_parameters")) for c in compared))
    row("steps", *(_figure(c.subject.training.get("step")) for c in compared))
    costs = [c.subject.training.get("cost", {}) for c in compared]
    row("training, CPU-seconds", *(_figure(cost.get("cpu_seconds")) for cost in costs))
    row("training, tokens/s", *(_figure(cost.get("tokens_per_second")) for cost in costs))
    row(
        f"loss, windows of {compared[0].scores.length}",
        *(f"{c.scores.fixed.loss:.4f}" for c in compared),
    )
    row("top-1", *(f"{c.scores.fixed.accuracy:.4f}" for c in compared))
    row("top-5", *(f"{c.scores.fixed.top5:.4f}" for c in compared))
    row("pseudo-perplexity", *(f"{c.scores.pseudo_perplexity:.3f}" for c in compared))
    made.add_section()
    for n in compared[0].speed:
        row(f"forward, tokens/s at {n}", *(_figure(c.speed[n]) for c in compared))
    made.add_section()
    lengths = sorted({n for c in compared for n in c.scores.by_length})
    for n in lengths:
        found = [c.scores.by_length.get(n) for c in compared]
        row(f"loss at {n} tokens", *("-" if s is None else f"{s.loss:.3f}" for s in found))
    return made


def plot(compared: Sequence[Compared], path: Path) -> None:
    """Loss and speed over the length of the text, a line for each."""
    import matplotlib as mpl  # a second to import

    mpl.use("Agg")  # no display
    from matplotlib import pyplot

    figure, (losses, speeds) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for one in compared:
        label = f"{one.subject.name} ({one.subject.mixer})"
        lengths = list(one.scores.by_length)
        losses.plot(lengths, [s.loss for s in one.scores.by_length.values()], "o-", label=label)
        speeds.plot(list(one.speed), list(one.speed.values()), "o-", label=label)
    losses.set(title="held-out loss", ylabel="nats per masked token")
    speeds.set(title="forward speed on this machine", ylabel="tokens a second")
    speeds.set_ylim(bottom=0)
    for axes in (losses, speeds):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("tokens in the text")
        axes.grid(alpha=0.3)
    losses.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def main(arguments: list[str] | None = None) -> int:
    """The command `maskwright-compare`."""
    parser = argparse.ArgumentParser(
        prog="maskwright-compare",
        description="Runs or artefacts side by side: loss, accuracy, size, training cost, forward "
        "speed, and loss by length.",
    )
    parser.add_argument("subjects", type=Path, nargs="+", help="runs or artefacts")
    parser.add_argument("--data", type=Path, nargs="+", help="text files; the last tenth is scored")
    parser.add_argument("--length", type=int, help="tokens in a window (64, or what fits)")
    parser.add_argument("--plot", type=Path, default=Path("compare.png"), help="(compare.png)")
    options = parser.parse_args(arguments)
    try:
        subjects = [load_subject(path) for path in options.subjects]
        compared = compare(subjects, data=options.data, length=options.length)
        plot(compared, options.plot)
    except (ValueError, OSError) as error:
        print(f"maskwright-compare: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    Console().print(table(compared))
    print(f"wrote {options.plot}")  # noqa: T201 the command's output
    return 0


if __name__ == "__main__":
    sys.exit(main())
