"""`make bench-train`: the trainer against labml's experiment, and against its own promises.

Each check prints what was measured, the bar and a verdict, and leaves it in a JSON file, from which
`table` writes the Markdown of docs/benchmarks.md. One thread; CPU-seconds of the process, held-out
scoring left out. `python -m tests.bench.train CHECK …`, or `all`, or `short`: the promises of a
trainer that is stopped, killed, split or fed much, in two minutes and fewer repeats.
"""

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from model.checkpoint import FILE_NAME, load_checkpoint
from model.config import PRESETS
from model.corpus import Text, fetch, shipped
from model.devices import Workers
from model.evaluate import held_out_score, score
from model.guesser import guesser
from model.mixers import MIXERS
from model.streams import text_of_files
from model.tokenizer import TRAINERS
from model.train import Run, Training

HERE = Path(__file__).parent
# labml's Mixer, measured once over 5,000 steps: held-out loss after 1,000 and 5,000 steps.
LABML_AFTER_1000, LABML_AFTER_5000 = 2.4185, 1.4828


def sprint(text: Text, mixer: str, *, steps: int, **recipe: object) -> Run:
    """A run at labml's sizes with our recipe."""
    preset = PRESETS["sprint"]
    tokenizer = TRAINERS["char"]([*text.training(), text.held_out()])
    return Run(
        config=preset.encoder_config(mixer=mixer, vocab_size=tokenizer.vocab_size),
        recipe=replace(preset.recipe, steps=steps, **recipe),
        corpus=text,
        tokenizer=tokenizer,
    )


class Timed:
    """A run with its CPU-seconds and full scores by step; compiling and drawing are counted."""

    def __init__(self, run: Run, out: Path) -> None:
        start = time.process_time()
        self.training = Training(run, out, workers=Workers(), tokens=None)
        self.cpu = time.process_time() - start

    def steps(self, n: int) -> list[float]:
        """CPU-seconds of each of the next `n` steps."""
        spent = []
        for _ in range(n):
            start = time.process_time()
            self.training.take_step()
            spent.append(time.process_time() - start)
        self.cpu += sum(spent)
        return spent

    def loss(self, *, draws: int = 4, max_windows: int | None = None) -> float:
        """Held-out loss by the fixed protocol, its time not counted."""
        training = self.training
        with torch.compiler.set_stance("force_eager"):
            return held_out_score(
                training.encoder,
                training.held_out_ids,
                tokenizer=training.run.tokenizer,
                length=32,
                draws=draws,
                max_windows=max_windows,
            ).loss


def check_losses(bench: "Bench") -> None:
    """Held-out loss after 400 and 1,000 steps, and CPU-seconds to labml's losses."""
    bars = {
        ("mhsa", 400): (1.60, 1.48),
        ("mlp_mixer", 400): (1.75, 1.62),
        ("mhsa", 1000): (1.45, 1.38),
        ("mlp_mixer", 1000): (1.52, 1.45),
    }
    for (mixer, n_steps), (must, aim) in bars.items():
        with tempfile.TemporaryDirectory() as out, bench.labml("mlp_mixer") as burst:
            timed = Timed(sprint(bench.text, mixer, steps=n_steps), Path(out))
            reached = _run_to_end(timed, n_steps, burst)
        bench.tell(f"{mixer}: held-out loss after {n_steps} steps", reached["loss"], "≤", must, aim)
        for name, value in reached.items():
            bench.keep(f"{mixer} {n_steps} {name}", value)


def _run_to_end(timed: Timed, n_steps: int, burst: Callable[[int], float]) -> dict[str, float]:
    """Final loss, and CPU-seconds (all, and of steps only) to each of labml's losses.

    `burst` takes steps of labml's Mixer in between, so that both meet the machine as it then is.
    """
    reached: dict[str, float] = {}
    theirs: list[float] = []
    setup = timed.cpu
    spent = timed.steps(10)
    # Compiling falls into the first step; what is above a usual step is counted apart.
    compiling = max(0.0, spent[0] - median(spent[1:]))
    for done in range(20, n_steps + 1, 10):
        timed.steps(10)
        if done <= 400:
            theirs.append(burst(2))
        for target in (LABML_AFTER_1000, LABML_AFTER_5000):
            # A look at a tenth of the windows tells when the full score is worth its time.
            if f"to {target}" in reached or timed.loss(draws=1, max_windows=350) > target + 0.05:
                continue
            if timed.loss() <= target:
                reached[f"to {target}"] = timed.cpu
                reached[f"steps only to {target}"] = timed.cpu - setup - compiling
                reached[f"step at {target}"] = done
    reached |= {"loss": timed.loss(), "cpu seconds": timed.cpu}
    return reached | {"labml seconds a step": median(theirs)}


def check_speed(bench: "Bench") -> None:
    """Tokens a CPU-second at rows of 32 over labml's, in alternating bursts."""
    bars = {"mhsa": (2.6, 4.0), "mlp_mixer": (2.9, 4.0)}
    for mixer, (must, aim) in bars.items():
        with tempfile.TemporaryDirectory() as out:
            timed = Timed(sprint(bench.text, mixer, steps=1000), Path(out))
            timed.steps(5)
            ratios, theirs, ours = [], [], []
            with bench.labml(mixer) as burst:
                for _ in range(bench.rounds):
                    theirs.append(burst(10))
                    ours.append(sum(timed.steps(10)) / 10)
                    ratios.append(theirs[-1] / ours[-1])
        bench.keep(f"{mixer} labml seconds a step", median(theirs))
        bench.keep(f"{mixer} seconds a step", median(ours))
        bench.tell(f"{mixer}: training tokens/s ÷ labml's", median(ratios), "≥", must, aim)


def check_labml(bench: "Bench") -> None:
    """labml's Mixer itself, 1,000 steps: that it gets no further than the bars take it to."""
    command = [str(bench.labml_python), str(HERE / "labml_side.py"), str(bench.text_file)]
    command += ["--mixer", "mlp_mixer", "--steps", "1000", "--score-every", "500"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    last = json.loads(done.stdout.splitlines()[-1])
    bench.keep("labml mlp_mixer loss after 1000 steps", last["loss"])
    bench.keep("labml mlp_mixer cpu seconds to 1000 steps", last["cpu_seconds"])
    print(f"labml's Mixer after 1,000 steps: {last['loss']:.4f}, {last['cpu_seconds']:.0f} CPU-s")


def check_ratios(bench: "Bench") -> None:
    """CPU-seconds to labml's losses, labml ÷ ours; needs the check of losses before."""
    for mixer in MIXERS:
        run = f"{mixer} 400"
        theirs = 1000 * bench.kept[f"{run} labml seconds a step"]
        ours = bench.kept[f"{run} steps only to {LABML_AFTER_1000}"]
        bench.tell(f"{mixer}: CPU-seconds to 2.4185, steps only", theirs / ours, "≥", 25, 40)
        ours = bench.kept[f"{run} to {LABML_AFTER_1000}"]
        bench.tell(f"{mixer}: CPU-seconds to 2.4185, all counted", theirs / ours, "≥", 15, 25)
        # Where 400 steps do not get there, 1,000 do; each with labml's steps beside it.
        n = 400 if f"{run} to {LABML_AFTER_5000}" in bench.kept else 1000
        theirs = 5000 * bench.kept[f"{mixer} {n} labml seconds a step"]
        ours = bench.kept[f"{mixer} {n} to {LABML_AFTER_5000}"]
        bench.tell(f"{mixer}: CPU-seconds to 1.4828, all counted", theirs / ours, "≥", 10, 20)


def check_lengths(bench: "Bench") -> None:
    """A Mixer trained on random lengths, at short lengths over its own loss at 32."""
    run = sprint(bench.text, "mlp_mixer", steps=400, row_lengths=(4, 8, 16, 32))
    with tempfile.TemporaryDirectory() as out:
        timed = Timed(run, Path(out))
        timed.steps(400)
        training = timed.training
        subject = guesser(training.encoder, run.tokenizer)
        with torch.compiler.set_stance("force_eager"):
            by_length = {n: score(subject, training.held_out_ids, length=n) for n in (4, 8, 16, 32)}
    bench.keep("mlp_mixer random lengths, loss at 32", by_length[32].loss)
    for n, must in ((16, 0.02), (8, 0.12), (4, 0.40)):
        over = by_length[n].loss - by_length[32].loss
        bench.tell(f"Mixer on random lengths: loss at {n} over its own at 32", over, "≤", must)


def check_resume(bench: "Bench") -> None:
    """Interrupted at five random steps and resumed: the losses are those of one go."""
    cut = sorted(random.Random(0).sample(range(2, 59), bench.repeats(5, short=1)))
    mixers = list(MIXERS)[: bench.repeats(2, short=1)]
    same = 0
    for mixer in mixers:
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory)
            _command(out / "whole", mixer)
            for stop in cut:
                _command(out / "cut", mixer, kill_after=stop, resume=(out / "cut").exists())
            _command(out / "cut", mixer, resume=True)
            curves = [_report(out / name)["train_curve"] for name in ("whole", "cut")]
            same += curves[0] == curves[1] and len(curves[0]) == 60
    name = f"losses identical after interruptions at steps {cut}, of {len(mixers)} mixers"
    bench.tell(name, same, "≥", len(mixers))


def check_kill(bench: "Bench") -> None:
    """kill -9 while checkpoints are being written: each leaves one that resumes."""
    chance, resumed, wanted = random.Random(1), 0, bench.repeats(20, short=2)
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        for _ in range(wanted):
            more = ["--checkpoint-every", "1", "--steps", "100000"]
            process = _start(out, "mhsa", more, resume=(out / FILE_NAME).exists())
            before = _step(out)
            while _step(out) <= before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.5)  # anywhere between and in the writes
            process.send_signal(signal.SIGKILL)
            process.wait()
            resumed += load_checkpoint(out).summary["step"] > before
    name = f"kill -9 during {wanted} checkpoint writes: resumed and got further"
    bench.tell(name, resumed, "≥", wanted)


def check_ddp(bench: "Bench") -> None:
    """Two processes against one, 50 steps in fp32: the largest difference of a loss."""
    n_steps, bars = bench.repeats(50, short=10), (("adamw", 1e-6), ("muon", None))
    for optimizer, bar in bars[: bench.repeats(2, short=1)]:
        curves = []
        with tempfile.TemporaryDirectory() as directory:
            for n in (1, 2):
                out = Path(directory) / str(n)
                more = ["--steps", str(n_steps), "--optimizer", optimizer, "--precision", "fp32"]
                _start(out, "mhsa", more, processes=n).wait()
                curves.append([loss for _, loss in _report(out)["train_curve"]])
        worst = max(abs(a - b) for a, b in zip(*curves, strict=True))
        name = f"2 processes against 1, {optimizer}, {n_steps} steps: largest difference of a loss"
        if bar is None:
            bench.keep(name, worst)
            print(f"{name}: {worst:.1e}")
        else:
            bench.tell(name, worst, "≤", bar)


def check_memory(bench: "Bench") -> None:
    """Peak memory of a run on a text of 1 GB, tokenising included."""
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory) / "big.txt"
        piece = "".join(bench.text.training()).encode()
        with text.open("wb") as file:
            while file.tell() < bench.megabytes * 2**20:
                file.write(piece)
        environment = os.environ | {"XDG_CACHE_HOME": directory}
        more = ["--text", str(text), "--steps", "50", "--eval-every", "50"]
        command = [
            sys.executable,
            "-c",
            _PEAK,
            *_arguments(Path(directory) / "run", "mhsa", more),
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        peak = int(done.stdout.splitlines()[-1]) / 2**20
    name = f"peak memory on a text of {bench.megabytes} MiB, GiB"
    bench.tell(name, peak, "≤", 1.5 * 1e9 / 2**30)


_PEAK = """
import resource, sys
from model.cli import main
main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _arguments(out: Path, mixer: str, more: list[str]) -> list[str]:
    fixed = ["--preset", "tiny", "--mixer", mixer, "--threads", "1", "--log-every", "1"]
    return [*fixed, "--out", str(out), *more]


def _start(
    out: Path, mixer: str, more: list[str], *, resume: bool = False, processes: int = 1
) -> "subprocess.Popen[bytes]":
    arguments = ["--resume", str(out), "--threads", "1"] if resume else _arguments(out, mixer, more)
    launch = ["-m", "model.cli"]
    if processes > 1:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), *launch]
    command = [sys.executable, *launch, *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _command(out: Path, mixer: str, *, kill_after: int | None = None, resume: bool = False) -> None:
    """A run of 60 steps, killed once a checkpoint of at least `kill_after` steps is there."""
    process = _start(out, mixer, ["--checkpoint-every", "1"], resume=resume)
    while kill_after is not None and process.poll() is None:
        if _step(out) >= kill_after:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    process.wait()


def _step(out: Path) -> int:
    return load_checkpoint(out).summary["step"] if (out / FILE_NAME).exists() else 0


def _report(out: Path) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = json.loads((out / "report.json").read_text())
    return found


class Bench:
    """What the checks share: the text, labml's environment, and what was measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.short = options.checks == ["short"]
        self.text: Text = _text(options.text, short=self.short)
        self.labml_python = options.labml
        self.rounds: int = options.rounds
        self.megabytes = self.repeats(options.megabytes, short=32)
        self._file: Path = options.results
        self.kept: dict[str, float] = {}
        self.rows: dict[str, dict[str, object]] = {}
        if self._file.exists():
            saved = json.loads(self._file.read_text())
            self.kept, self.rows = saved["kept"], saved["rows"]
        self.text_file = self._file.with_suffix(".txt")
        self.text_file.parent.mkdir(parents=True, exist_ok=True)
        self.text_file.write_text("".join([*self.text.training(), self.text.held_out()]))

    def repeats(self, usual: int, *, short: int) -> int:
        """How often a check does what it does."""
        return short if self.short else usual

    def keep(self, name: str, value: float) -> None:
        """Remember a figure."""
        self.kept[name] = value
        self._save()

    def tell(
        self, name: str, value: float, sign: str, must: float, aim: float | None = None
    ) -> None:
        """Print and remember a row."""

        def holds(bar: float) -> bool:
            return value <= bar if sign == "≤" else value >= bar

        verdict = "aim" if aim is not None and holds(aim) else "ok" if holds(must) else "SHORT"
        print(f"{verdict:5}  {name}: {value:.4g} ({sign} {must:g}{_aim(aim)})", flush=True)
        self.rows[name] = {
            "value": value, "sign": sign, "must": must, "aim": aim, "verdict": verdict,
        }  # fmt: skip
        self._save()

    def _save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"kept": self.kept, "rows": self.rows}, indent=1))

    def table(self) -> str:
        """The rows as Markdown."""
        lines = ["| check | measured | must | aim | |", "| --- | --- | --- | --- | --- |"]
        for name, row in self.rows.items():
            aim = "" if row["aim"] is None else f"{row['sign']} {row['aim']:g}"
            must = f"{row['sign']} {row['must']:g}"
            lines.append(f"| {name} | {row['value']:.4g} | {must} | {aim} | {row['verdict']} |")
        return "\n".join(lines)

    class _Labml:
        """labml in a process of its own, a burst of steps at a time."""

        def __init__(self, python: Path, text: Path, mixer: str) -> None:
            command = [
                str(python),
                str(HERE / "labml_side.py"),
                str(text),
                "--mixer",
                mixer,
                "--bursts",
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True,
            )  # fmt: skip

        def __enter__(self) -> Callable[[int], float]:
            self._burst(3)
            return self._burst

        def __exit__(self, *error: object) -> None:
            self._process.kill()
            self._process.wait()

        def _burst(self, n_steps: int) -> float:
            """CPU-seconds a step."""
            assert self._process.stdin
            assert self._process.stdout
            print(n_steps, file=self._process.stdin, flush=True)
            for line in self._process.stdout:
                if line.startswith("{"):
                    return float(json.loads(line)["seconds_a_step"])
            raise RuntimeError("labml's process ended")

    def labml(self, mixer: str) -> "Bench._Labml":
        """labml, ready for bursts."""
        return self._Labml(self.labml_python, self.text_file, mixer)


def _aim(aim: float | None) -> str:
    return "" if aim is None else f", aim {aim:g}"


def _text(path: Path | None, *, short: bool) -> Text:
    """The text that is asked for, or Tiny Shakespeare, or for the short form what ships."""
    if path:
        return text_of_files([path])
    return shipped() if short else fetch("tiny-shakespeare")


CHECKS: dict[str, Callable[[Bench], None]] = {
    "losses": check_losses,
    "speed": check_speed,
    "labml": check_labml,
    "ratios": check_ratios,
    "lengths": check_lengths,
    "resume": check_resume,
    "kill": check_kill,
    "ddp": check_ddp,
    "memory": check_memory,
}


GROUPS = {"all": [*CHECKS], "short": ["resume", "kill", "ddp", "memory"]}


def _wanted(names: list[str]) -> Iterator[tuple[str, Callable[[Bench], None]]]:
    for name in GROUPS.get(names[0], names):
        yield name, CHECKS[name]


def main() -> int:
    """Run the named checks; 1 if one falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="+", choices=[*CHECKS, *GROUPS, "table"])
    parser.add_argument("--text", type=Path, help="Tiny Shakespeare (downloaded)")
    parser.add_argument("--labml", type=Path, default=Path(".venv-labml/bin/python"))
    parser.add_argument("--results", type=Path, help="where to keep what was measured")
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each side (7)")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the large text (1024)")
    options = parser.parse_args()
    group = "-short" if options.checks == ["short"] else ""
    options.results = options.results or Path(f"runs/bench-train{group}.json")
    torch.set_num_threads(1)
    bench = Bench(options)
    if options.checks == ["table"]:
        print(bench.table())
        return 0
    for name, check in _wanted(options.checks):
        start = time.perf_counter()
        check(bench)
        print(f"       {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    return int(any(row["verdict"] == "SHORT" for row in bench.rows.values()))


if __name__ == "__main__":
    sys.exit(main())
