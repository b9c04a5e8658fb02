"""`make bench`: our server, the plain server and ONNX Runtime alone, in turns on the same texts.

Windows of 10 s after 2 s, three rounds, medians; the same seed for every side. About 45 minutes for
the four bench models on two cores; `--short` takes the model that ships, one round of 2 s, and only
checks that every answer is right. Leaves runs/bench/serve.json, from which the table and the plot
of docs/benchmarks.md are written.
"""

import argparse
import contextlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

from export.artefact import load_artefact
from model.tokenizer import Tokenizer
from service.load import Load
from service.workload import Sample, from_file, masked, passages
from tests.bench import serve_report
from tests.bench.expected import TOLERANCE, Expected
from tests.bench.models import ALIKE, CARRYING, HOME, MODELS, artefact
from tests.bench.servers import ours, plain, resident_bytes, window

ROUTES = ("/fill-mask", "/embed")
N_SAMPLES = 2048
N_LISTED = 128  # texts in a request of many
KEEP_EVERY = 25
Figures = dict[str, Any]


@dataclass
class Bench:
    """Measures one model."""

    path: Path
    seconds: float
    warmup: float
    rounds: int
    data: Path | None = None
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        loaded = load_artefact(self.path, hard_links=True)
        self.tokenizer = Tokenizer.from_json(loaded.tokenizer_json)
        self.longest: int = loaded.manifest["max_tokens"]
        self.tolerances = {
            variant.precision: variant.tolerance
            for variant in loaded.variants
            if variant.graph == "encode"
        }
        self.samples = {route: self._samples(route) for route in ROUTES}

    def _samples(self, route: str) -> list[Sample]:
        samples = (
            from_file(self.data)
            if self.data
            else passages(N_SAMPLES, seed=1, tokenizer=self.tokenizer, longest=self.longest)
        )
        if route == "/fill-mask":
            samples = masked(samples, seed=1, tokenizer=self.tokenizer)
        return [s for s in samples if s.n_tokens is None or s.n_tokens <= self.longest]

    def load(self, url: str, route: str, *, connections: int, n_texts: int = 1) -> Load:
        """A window, whose answers must all be there and, where looked at, right."""
        samples = self.samples[route]
        found = window(
            url, route, samples, seconds=self.seconds, warmup=self.warmup, connections=connections,
            n_texts=n_texts, keep_every=1 if n_texts > 1 else KEEP_EVERY,
        )  # fmt: skip
        self.wrong += [f"{route}, {connections}: {kind}" for kind in found.errors.elements()]
        return found

    def check(self, found: Load, route: str, *, n_texts: int = 1, precision: str = "fp32") -> None:
        """Compare the answers that were kept with those of each text alone."""
        expected, samples = Expected(self.path, route, precision), self.samples[route]
        tolerance = max(TOLERANCE, self.tolerances[precision])
        if not found.kept:
            self.wrong.append(f"{route}: no answer was looked at")
        for place, body in found.kept:
            off = expected.off_by(samples[place * n_texts : (place + 1) * n_texts], body)
            if not off <= tolerance:
                self.wrong.append(f"{route}: an answer is {off:.1e} off")

    def versus(self, connections: Sequence[int], *, carries: bool) -> Figures:
        """Ours, the plain server and ONNX Runtime alone, in turns; each round has all of them.

        Args:
            carries: Whether lists, int8 and ONNX Runtime alone are measured as well.
        """
        rows: dict[str, dict[str, list[Load]]] = {}
        loops: dict[str, dict[str, list[float]]] = {route: {} for route in ROUTES}
        int8 = carries and "int8" in self.tolerances
        with contextlib.ExitStack() as stack:
            mine, _ = stack.enter_context(ours(self.path, "--precision", "fp32"))
            other, _ = stack.enter_context(plain(self.path))
            sides = {"ours": mine, "plain": other}
            if int8:
                sides["int8"], _ = stack.enter_context(ours(self.path, "--precision", "int8"))
            for _ in range(self.rounds):
                for route in ROUTES:
                    for n in connections:
                        row = rows.setdefault(f"{route} {n}", {})
                        for side, url in sides.items():
                            if side != "int8" or n == 32:
                                found = self.load(url, route, connections=n)
                                row.setdefault(side, []).append(found)
                    if carries:
                        lists = self.load(mine, route, connections=2, n_texts=N_LISTED)
                        rows.setdefault(f"{route} lists", {}).setdefault("ours", []).append(lists)
                        self.loops("fp32", route, loops[route])
        for row, of_sides in rows.items():
            route, n_texts = row.split()[0], N_LISTED if row.endswith("lists") else 1
            for side in of_sides.keys() - {"plain"}:
                precision = "int8" if side == "int8" else "fp32"
                for load in of_sides[side]:
                    self.check(load, route, n_texts=n_texts, precision=precision)
        return _figures(rows) | ({"loops": _medians_of(loops)} if carries else {})

    def loops(self, precision: str, route: str, into: dict[str, list[float]]) -> None:
        """Another measurement of ONNX Runtime alone."""
        ways = ("one", "sorted", "window")
        found = loop(self.path, route, ways, precision, self.seconds, self.data)
        for way, tokens_s in found.items():
            into.setdefault(way, []).append(tokens_s)

    def auto(self) -> Figures | None:
        """What a service does that is told no precision; None where that is fp32.

        Ours, the plain server in fp32 and ONNX Runtime alone in ours' precision, in turns.
        """
        rows: dict[str, dict[str, list[Load]]] = {}
        loops: dict[str, dict[str, list[float]]] = {route: {} for route in ROUTES}
        with ours(self.path) as (mine, _), plain(self.path) as (other, _):
            with urlopen(f"{mine}/info") as answer:
                precision: str = json.load(answer)["variants"]["encode"]["precision"]
            if precision == "fp32":
                return None
            for _ in range(self.rounds):
                for route in ROUTES:
                    for n in (32, 128):
                        row = rows.setdefault(f"{route} {n}", {"ours": [], "plain": []})
                        for side, url in (("ours", mine), ("plain", other)):
                            row[side].append(self.load(url, route, connections=n))
                    self.loops(precision, route, loops[route])
        for row, of_sides in rows.items():
            for load in of_sides["ours"]:
                self.check(load, row.split()[0], precision=precision)
        return _figures(rows) | {"precision": precision, "loops": _medians_of(loops)}

    def alone(self) -> Figures:
        """What one server does beside throughput: fairness, memory, exactness."""
        figures: Figures = {}
        with ours(self.path, "--precision", "fp32") as (url, pid):
            figures |= self._fairness(url)
            figures["resident"] = [self._sweep(url, pid) for _ in range(3)]
            figures["batched_off"] = max(self._batched_off(url, route) for route in ROUTES)
        return figures

    def _batched_off(self, url: str, route: str) -> float:
        """Largest distance of what 1,000 texts in one request give from what each gives alone.

        Of features of vectors of length 1, and of probabilities.
        """
        samples = self.samples[route][:1000]
        asked = json.dumps({"inputs": [sample.text for sample in samples]}).encode()
        request = Request(f"{url}{route}", asked, {"content-type": "application/json"})
        with urlopen(request) as answer:
            return Expected(self.path, route).off_by(samples, answer.read())

    def _fairness(self, url: str) -> Figures:
        """p99 of a connection of 20-token texts, by itself and beside one of the longest."""
        short = [self._of_length(20, seed) for seed in range(64)]
        long = [self._of_length(self.longest, seed) for seed in range(64)]
        by_itself = self._lone(url, short, self.seconds)
        command = [sys.executable, "-m", "service.load_cli", url, "--data"]
        lines = HOME / "long.txt"
        lines.parent.mkdir(parents=True, exist_ok=True)
        lines.write_text("\n".join(sample.text for sample in long), encoding="utf-8")
        heavy = subprocess.Popen(
            [*command, str(lines), "--seconds", str(self.seconds + 2), "--warmup", "0"],
            stdout=subprocess.DEVNULL,
        )
        beside = self._lone(url, short, self.seconds - 1)
        if heavy.wait(60):
            self.wrong.append("/embed, the longest texts: some were not answered")
        return {"p99_alone": by_itself.quantile(0.99), "p99_beside": beside.quantile(0.99)}

    def _lone(self, url: str, samples: Sequence[Sample], seconds: float) -> Load:
        """One connection of texts."""
        found = window(url, "/embed", samples, seconds=seconds, warmup=self.warmup, connections=1)
        self.wrong += [f"/embed, alone: {kind}" for kind in found.errors.elements()]
        return found

    def _of_length(self, n_tokens: int, seed: int) -> Sample:
        """A passage cut to very nearly so many tokens."""
        text = " ".join(s.text for s in self.samples["/embed"][seed : seed + 64])
        encoded = self.tokenizer.encode(text)
        end = encoded.offsets[n_tokens - self.tokenizer.n_wrap - 1][1]
        return Sample(text[:end], n_tokens)

    def _sweep(self, url: str, pid: int) -> int:
        """Resident bytes after a text of every length, and lists of each."""
        for n_tokens in range(8, self.longest + 1, 4):
            sample = self._of_length(n_tokens, n_tokens)
            for n_texts in (1, 7):
                found = window(
                    url, "/embed", [sample] * n_texts, seconds=0.02, warmup=0, connections=2,
                    n_texts=n_texts,
                )  # fmt: skip
                self.wrong += [f"/embed, sweep: {kind}" for kind in found.errors.elements()]
        return resident_bytes(pid)


def loop(
    path: Path,
    route: str,
    ways: Sequence[str],
    precision: str,
    seconds: float,
    data: Path | None = None,
) -> dict[str, float]:
    """Tokens a second of ONNX Runtime alone, by way."""
    command = [sys.executable, "-m", "tests.bench.loop", str(path), "--seed", "1", "--route", route]
    command += ["--precision", precision, "--seconds", str(seconds), "--ways", *ways]
    command += ["--data", str(data)] if data else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def mixers(seconds: float, rounds: int) -> Figures:
    """Both mixers at one size and vocabulary on rows of 128 tokens, in turns."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in ALIKE:
            tokens_s = loop(artefact(name), "/embed", ["long"], "fp32", seconds)["long"]
            found.setdefault(name, []).append(tokens_s)
    return {name: median(each) for name, each in found.items()}


def _medians_of(loops: Mapping[str, Mapping[str, Sequence[float]]]) -> Figures:
    return {
        route: {way: median(each) for way, each in ways.items()} for route, ways in loops.items()
    }


def _figures(rows: Mapping[str, Mapping[str, Sequence[Load]]]) -> Figures:
    return {
        "rows": {
            row: {side: _medians(loads) for side, loads in of_sides.items()}
            for row, of_sides in rows.items()
        }
    }


def _medians(loads: Sequence[Load]) -> Figures:
    return {
        "tokens_s": median(load.n_tokens / load.seconds for load in loads),
        "p50": median(load.quantile(0.5) for load in loads),
        "p99": median(load.quantile(0.99) for load in loads),
    }


def measure(name: str, options: argparse.Namespace, results: Path) -> list[str]:
    """All that is measured of a bench model, but for what is there; what was lost or wrong."""
    bench = Bench(artefact(name), options.seconds, 2.0, options.rounds, options.data)
    carries = name in CARRYING
    figures: Figures = _kept(results).get(name, {"wrong": []})
    connections = (1, 8, 32, 128) if carries else (32,)
    parts: dict[str, Callable[[], Any]] = {
        "versus": lambda: bench.versus(connections, carries=carries)
    }
    if carries:
        parts |= {
            "alone": bench.alone,
            "overhead": lambda: overhead(bench.path),
            "auto": bench.auto,
        }
    for part, measured in parts.items():
        if part not in figures:
            figures[part] = measured()
            figures["wrong"] += bench.wrong
            bench.wrong.clear()
            keep(results, name, figures)
    wrong: list[str] = figures["wrong"]
    return wrong


def overhead(path: Path) -> dict[str, float]:
    """Microseconds of CPU that a request of each route takes beside its model."""
    command = [sys.executable, "-m", "tests.bench.overhead", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _kept(results: Path) -> Figures:
    found: Figures = json.loads(results.read_text()) if results.exists() else {}
    return found


def keep(results: Path, name: str, figures: Figures) -> None:
    """Add figures to those of other runs, and write the page anew."""
    found = _kept(results)
    found[name] = figures
    found["machine"] = f"{platform.processor() or platform.machine()}, {_cpu()}"
    results.write_text(json.dumps(found, indent=1))
    serve_report.write(found)


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text()
    return text.partition("model name\t: ")[2].partition("\n")[0]


def short() -> list[str]:
    """One quick round on the model that ships; what was lost or wrong."""
    import service.models

    bench = Bench(service.models.BUNDLED / "shakespeare-mhsa", seconds=2.0, warmup=0.5, rounds=1)
    for row, sides in bench.versus((1, 32), carries=False)["rows"].items():
        ratio = sides["ours"]["tokens_s"] / max(1.0, sides["plain"]["tokens_s"])
        print(f"{row}: {sides['ours']['tokens_s']:.0f} tokens/s, {ratio:.2f} x plain", flush=True)
    return bench.wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 if any answer was lost or wrong."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="other texts: one a line, or .jsonl")
    options = parser.parse_args(arguments)
    results = HOME / "serve.json"
    if options.short:
        wrong = short()
    else:
        wrong = []
        for name in options.models or MODELS:
            if not artefact(name).exists():
                print(f"{name} is not there: make bench-models", flush=True)
                continue
            wrong += measure(name, options, results)
        if not options.models and all(artefact(name).exists() for name in ALIKE):
            keep(results, "mixers", mixers(options.seconds, options.rounds))
    for line in sorted(set(wrong)):
        print(f"{line} ({wrong.count(line)} times)", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
