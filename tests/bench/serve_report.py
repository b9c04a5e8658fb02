"""The table and the plot that `make bench` leaves in docs/benchmarks.md."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PAGE, PLOT = Path("docs/benchmarks.md"), Path("docs/serving-throughput.png")
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"

# (route, connections): must, aim; ours ÷ the plain server.
VERSUS = {
    "/fill-mask 1": (1.15, 1.4), "/fill-mask 8": (1.2, 1.4),
    "/fill-mask 32": (1.35, 1.5), "/fill-mask 128": (1.45, 1.6),
    "/embed 1": (1.15, 1.4), "/embed 8": (1.15, 1.3),
    "/embed 32": (1.30, 1.45), "/embed 128": (1.30, 1.5),
}  # fmt: skip
CEILING = {32: (0.75, 0.82), 128: (0.82, 0.90)}

Row = tuple[str, float, str, bool]  # what, measured, "must; aim", whether it holds


def rows(name: str, found: Mapping[str, Any]) -> Iterator[Row]:
    """The bars of one model."""
    for row, sides in found["versus"]["rows"].items():
        if row not in VERSUS:
            continue
        ratio = sides["ours"]["tokens_s"] / sides["plain"]["tokens_s"]
        must, aim = VERSUS[row]
        yield f"{name}, {row}, ours ÷ plain", ratio, f"≥ {must}; {aim}", ratio >= must
        if row.endswith(" 128"):
            late = sides["ours"]["p99"] / sides["plain"]["p99"]
            yield f"{name}, {row}, p99 ÷ plain's", late, "≤ 0.5; 0.3", late <= 0.5
    if "loops" in found["versus"]:
        yield from _loops(name, found["versus"])
        yield from _by_name(name, found)
    if alone := found.get("alone"):
        yield from _alone(name, alone)
    for route, overhead in found.get("overhead", {}).items():
        what = f"{name}, {route}, µs a request beyond run and encode"
        yield what, overhead, "≤ 250; 180", overhead <= 250
    wrong = len(found["wrong"])
    yield f"{name}, lost or wrong answers", wrong, "0", not wrong


def _loops(name: str, versus: Mapping[str, Any]) -> Iterator[Row]:
    """Against ONNX Runtime alone."""
    for route, ways in versus["loops"].items():

        def ours(row: str, route: str = route) -> float:
            tokens_s: float = versus["rows"][f"{route} {row}"]["ours"]["tokens_s"]
            return tokens_s

        one = ours("1") / ways["one"]
        yield f"{name}, {route} 1, ÷ loop of one text", one, "≥ 0.6; 0.8", one >= 0.6
        for n, (must, aim) in CEILING.items():
            ratio = ours(str(n)) / ways["sorted"]
            yield f"{name}, {route} {n}, ÷ sorted loop", ratio, f"≥ {must}; {aim}", ratio >= must
        lists = ours("lists") / ways["window"]
        what = f"{name}, {route}, lists of 128 ÷ loop of windows"
        yield what, lists, "≥ 0.85; 0.95", lists >= 0.85


def _alone(name: str, alone: Mapping[str, Any]) -> Iterator[Row]:
    """Of our server by itself."""
    fair = alone["p99_beside"] / alone["p99_alone"]
    yield f"{name}, p99 of short texts beside long ÷ alone", fair, "≤ 4; 2", fair <= 4
    off = alone["batched_off"]
    yield f"{name}, alone against batched, 1,000 texts", off, "≤ 1e-5", off <= 1e-5
    grown = alone["resident"][2] / alone["resident"][0]
    yield f"{name}, memory after three sweeps ÷ after one", grown, "≤ 1.05", grown <= 1.05


def _by_name(name: str, found: Mapping[str, Any]) -> Iterator[Row]:
    """The bars of precisions; where `auto` is fp32 its figures are those of fp32."""
    versus, auto = found["versus"], found.get("auto") or found["versus"]
    unasked = auto.get("precision", "fp32")
    for route, ways in auto["loops"].items():
        sides = versus["rows"][f"{route} 32"]
        if "int8" in sides:
            ratio = sides["int8"]["tokens_s"] / sides["plain"]["tokens_s"]
            yield f"{name}, {route} 32, int8 ÷ plain", ratio, "≥ 2; 2.8", ratio >= 2
        sides = auto["rows"][f"{route} 32"]
        ratio = sides["ours"]["tokens_s"] / sides["plain"]["tokens_s"]
        what = f"{name}, {route} 32, auto ({unasked}) ÷ plain"
        yield what, ratio, "≥ 2.8; 3.6", ratio >= 2.8
        ratio = auto["rows"][f"{route} 128"]["ours"]["tokens_s"] / ways["sorted"]
        what = f"{name}, {route} 128, auto ({unasked}) ÷ sorted loop of its precision"
        yield what, ratio, "≥ 0.6; 0.7", ratio >= 0.6


def write(results: Mapping[str, Any]) -> None:
    """Put the table and the plot into the docs."""
    models = {name: f for name, f in results.items() if name not in ("machine", "mixers")}
    lines = ["| bar | measured | must; aim |", "| --- | --- | --- |"]
    found = [row for name, figures in models.items() for row in rows(name, figures)]
    if alike := results.get("mixers"):
        mhsa, mixer = alike.values()
        what = "Mixer ÷ MHSA, ONNX Runtime alone, rows of 128 tokens, 8k pieces"
        found.append((what, mixer / mhsa, "≥ 1.2", mixer >= 1.2 * mhsa))
    for what, value, bar, holds in found:
        lines.append(f"| {what} | {value:.3g}{'' if holds else ', short'} | {bar} |")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join([f"{BEGIN}", f"Measured on {results['machine']}.", "", *lines, END])
    PAGE.write_text(before + table + after, encoding="utf-8")
    plot(models)


def plot(models: Mapping[str, Any]) -> None:
    """Tokens a second over connections: ours, the plain server, ONNX Runtime alone."""
    versus = {name: found["versus"] for name, found in models.items()}
    carrying = {name: found for name, found in versus.items() if "loops" in found}
    if not carrying:
        return
    figure, axes = plt.subplots(len(carrying), 2, figsize=(9, 3.2 * len(carrying)), squeeze=False)
    for line, (name, found) in zip(axes, carrying.items(), strict=True):
        for axis, route in zip(line, found["loops"], strict=True):
            connections = (1, 8, 32, 128)
            for side in ("ours", "plain"):
                points = [found["rows"][f"{route} {n}"][side]["tokens_s"] for n in connections]
                axis.plot(connections, points, marker="o", label=side)
            axis.axhline(found["loops"][route]["sorted"], ls=":", c="grey", label="ORT, sorted")
            axis.set_xscale("log", base=2)
            axis.set_xticks(connections, [str(n) for n in connections])
            axis.set(title=f"{name} {route}", xlabel="connections", ylabel="tokens/s", ylim=0)
            axis.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)
