"""The command `maskwright-evaluate`: scores of a checkpoint or an artefact."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from export.subject import Subject, held_out_text, load_subject
from model.capitals import capitals, capitals_of
from model.cloze import cloze, facts_of, phrasings_of
from model.corpus import from_files
from model.evaluate import DRAWS, Score, pseudo_perplexity, score, score_by_length
from model.guesser import Guesser
from model.minimal_pairs import minimal_pairs_of, preference
from model.progress import Progress
from model.similarity import pairs_of, similarity

Result = TypeVar("Result")


@dataclass(frozen=True)
class Scores:
    """Everything the command says of a subject's held-out text."""

    fixed: Score
    length: int
    by_length: Mapping[int, Score]
    pseudo_perplexity: float

    def __str__(self) -> str:
        lines = [
            f"windows of {self.length}: {self.fixed}",
            f"pseudo-perplexity {self.pseudo_perplexity:.3f} per token, first windows",
            "",
            "length   loss  top-1  top-5",
        ]
        lines += [
            f"{length:6}  {found.loss:.3f}  {found.accuracy:.3f}  {found.top5:.3f}"
            for length, found in self.by_length.items()
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class TextScore:
    """The fixed protocol on all of a text."""

    file: str
    length: int
    score: Score

    def __str__(self) -> str:
        return f"{self.file}, windows of {self.length}: {self.score}"


def evaluate(
    subject: Guesser,
    ids: NDArray[np.int64],
    *,
    length: int | None = None,
    draws: int = DRAWS,
    tell: Callable[[int], None] = lambda done: None,
) -> Scores:
    """The fixed protocol at `length` (64, or what fits), and what else is worth knowing.

    Args:
        tell: Is told how many more windows the fixed protocol has seen.
    """
    length = _length(subject, length)
    return Scores(
        score(subject, ids, length=length, draws=draws, tell=tell),
        length,
        score_by_length(subject, ids),
        pseudo_perplexity(subject, ids, length=length),
    )


def _length(subject: Guesser, length: int | None) -> int:
    return min(64, subject.room) if length is None else length


def scores(subject: Subject, options: argparse.Namespace) -> list[tuple[str, Callable[[], Any]]]:
    """What was asked for, by name, to be computed; the files are read at once.

    Raises:
        ValueError: A file is none of its kind.
    """
    of, asked = subject.guesser, list[tuple[str, Callable[[], Any]]]()
    named = (options.text, options.sts, options.cloze, options.capitals, options.blimp)
    if options.data or options.agreement or not any(named):
        held_out = held_out_text(subject, options.data)
        if options.agreement:
            asked.append(("agreement", lambda: _agreement(subject, held_out)))
        if options.data or not options.agreement:
            asked.append(("held_out", lambda: _held_out(of, held_out, options)))
    if options.text:
        texts = [(path.name, from_files([path]).text) for path in options.text]
        asked.append(("text", lambda: [_text(of, *text, options) for text in texts]))
    if options.sts:
        pairs = [(path.name, pairs_of(path)) for path in options.sts]
        how = {"pooling": options.pooling, "dimensions": options.dimensions}
        asked.append(("sts", lambda: [similarity(of, *file, **how) for file in pairs]))
    if options.cloze:
        facts, phrasings = facts_of(options.cloze), phrasings_of(options.patterns)
        n = len({fact.relation for fact in facts})
        asked.append(("cloze", lambda: _shown("cloze", n, partial(cloze, of, facts, phrasings))))
    if options.capitals:
        countries = capitals_of(options.capitals)
        asked.append(("capitals", lambda: capitals(of, countries)))
    if options.blimp:
        sets = minimal_pairs_of(options.blimp, per_set=options.pairs_per_set)
        compute = partial(preference, of, sets)
        asked.append(("blimp", lambda: _shown("minimal pairs", len(sets), compute)))
    return asked


def _held_out(subject: Guesser, text: str, options: argparse.Namespace) -> Scores:
    return _on_windows(evaluate, "held-out text", subject, text, options)


def _text(subject: Guesser, name: str, text: str, options: argparse.Namespace) -> TextScore:
    found = _on_windows(score, name, subject, text, options)
    return TextScore(name, _length(subject, options.length), found)


def _on_windows(
    compute: Callable[..., Result],
    what: str,
    subject: Guesser,
    text: str,
    options: argparse.Namespace,
) -> Result:
    length, draws = _length(subject, options.length), options.draws
    ids = subject.tokenizer.encode_corpus(text)
    n_windows = len(ids) // max(1, length) * draws
    return _shown(what, n_windows, partial(compute, subject, ids, length=length, draws=draws))


def _shown(what: str, total: int, compute: Callable[..., Result]) -> Result:
    """What is computed, with a line on its progress."""
    with Progress(shown=True) as progress:
        return compute(tell=progress.counting(what, total))


def _agreement(subject: Subject, text: str) -> Any:
    if subject.artefact is None:
        raise ValueError("a checkpoint is scored in fp32; --agreement is of artefacts")
    from export.variants import agreement  # ONNX Runtime, which checkpoints do without

    return agreement(subject.artefact, subject.precision, text=text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-evaluate",
        description="Scores of a checkpoint or an artefact. Without any file: held-out masked "
        "loss, top-1 and top-5 on windows and masks that never change, the same by length of the "
        "text, and pseudo-perplexity. With files: what is asked for. docs/evaluation.md describes "
        "the files and the scores; all may be packed as .xz.",
    )
    add = parser.add_argument
    add("subject", type=Path, help="a run, a checkpoint file or an artefact")
    add("--precision", help="of an artefact's variants the one to score (fp32)")
    add("--data", type=Path, nargs="+", metavar="FILE", help="texts; the last tenth is scored")
    add("--text", type=Path, nargs="+", metavar="FILE", help="texts; all of each is scored")
    add("--length", type=int, help="tokens in a window (64, or what fits)")
    add("--draws", type=int, default=DRAWS, help=f"mask draws ({DRAWS})")
    add("--sts", type=Path, nargs="+", metavar="FILE", help="pairs of sentences, STS-B or SICK")
    add("--pooling", default="mean", help="how tokens become a vector for --sts (mean)")
    add("--dimensions", type=int, nargs="+", default=[], metavar="N", help="leading features too")
    add("--cloze", type=Path, metavar="FACTS", help="facts as JSON lines")
    add("--patterns", type=Path, help="the phrasings for --cloze, JSON")
    add("--capitals", type=Path, metavar="FILE", help="countries and capitals, JSON or tabs")
    add("--blimp", type=Path, nargs="+", metavar="FILE", help="minimal pairs as JSON lines")
    add("--pairs-per-set", type=int, default=200, metavar="N", help="first pairs of each set (200)")
    add("--agreement", action="store_true", help="of --precision with fp32, on held-out text")
    add("--json", action="store_true", help="print JSON")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The command `maskwright-evaluate`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.cloze is None) != (options.patterns is None):
        parser.error("--cloze and --patterns go together")
    found: dict[str, Any] = {}
    try:
        subject = load_subject(options.subject, precision=options.precision)
        found |= {"subject": subject.name, "precision": subject.precision}
        for name, compute in scores(subject, options):
            found[name] = compute()
            if not options.json:
                for each in found[name] if isinstance(found[name], list) else [found[name]]:
                    print(each, flush=True)  # noqa: T201 the command's output
    except (ValueError, OSError) as error:
        print(f"maskwright-evaluate: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    if options.json:
        print(json.dumps(found, default=dataclasses.asdict))  # noqa: T201 the command's output
    return 0


if __name__ == "__main__":
    sys.exit(main())
