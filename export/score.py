"""The command `maskwright-evaluate`: scores of a checkpoint or an artefact."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.artefact import load_artefact
from model.checkpoint import load_checkpoint
from model.corpus import Text, shipped
from model.evaluate import (
    DRAWS,
    Guesser,
    Score,
    guesser,
    pseudo_perplexity,
    score,
    score_by_length,
)
from model.streams import text_of_files
from model.tokenizer import Tokenizer


@dataclass(frozen=True)
class Subject:
    """A checkpoint or an artefact, ready to be scored.

    Attributes:
        training: Its training summary, empty where there is none.
    """

    name: str
    mixer: str
    guesser: Guesser
    training: Mapping[str, Any]


def load_subject(path: Path) -> Subject:
    """What lies at `path`: a run's directory or checkpoint file, or an artefact's directory.

    Raises:
        ValueError: It is neither, or is damaged.
        FileNotFoundError: There is nothing.
    """
    if (path / "manifest.json").exists():
        return _artefact(path)
    checkpoint = load_checkpoint(path)
    name = path.resolve().name if path.is_dir() else path.resolve().parent.name
    return Subject(
        name,
        checkpoint.config.mixer,
        guesser(checkpoint.encoder, checkpoint.tokenizer),
        checkpoint.summary,
    )


def _artefact(path: Path) -> Subject:
    from export.parity import open_session  # ONNX Runtime, which checkpoints do without

    artefact = load_artefact(path)
    manifest = artefact.manifest
    variant = next(v for v in artefact.variants if v.graph == "encode" and "cpu" in v.providers)
    session = open_session(path / variant.file)

    def predict(ids: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.floating]:
        lengths = np.full(len(ids), ids.shape[1])
        feeds = {"input_ids": ids, "lengths": lengths, "mask_positions": positions}
        found: NDArray[np.floating] = session.run(["mask_logprobs"], feeds)[0]
        return found

    tokenizer = Tokenizer.from_json(artefact.tokenizer_json)
    subject = Guesser(predict, tokenizer, manifest["max_tokens"])
    return Subject(artefact.name, manifest["mixer"], subject, manifest["training"])


def held_out_ids(subject: Subject, data: Sequence[Path] | None) -> NDArray[np.int64]:
    """The held-out part of the given files, else of the shipped text if it was trained on that.

    Raises:
        ValueError: It was trained on another text, and no file is given.
    """
    text: Text
    if data:
        text = text_of_files(data)
    else:
        text = shipped()
        trained_on = subject.training.get("corpus", {})
        if trained_on.get("sha256", text.sha256) != text.sha256:
            raise ValueError(
                f"{subject.name} was trained on {trained_on['name']}; give its text with --data"
            )
    return subject.guesser.tokenizer.encode_corpus(text.held_out())


@dataclass(frozen=True)
class Scores:
    """Everything the command says of a subject."""

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


def evaluate(
    subject: Guesser, ids: NDArray[np.int64], *, length: int | None = None, draws: int = DRAWS
) -> Scores:
    """The fixed protocol at `length` (64, or what fits), and what else is worth knowing."""
    longest = subject.max_tokens - subject.tokenizer.n_wrap
    length = min(64, longest) if length is None else length
    return Scores(
        score(subject, ids, length=length, draws=draws),
        length,
        score_by_length(subject, ids),
        pseudo_perplexity(subject, ids, length=length),
    )


def main(arguments: list[str] | None = None) -> int:
    """The command `maskwright-evaluate`."""
    parser = argparse.ArgumentParser(
        prog="maskwright-evaluate",
        description="Held-out masked loss, top-1 and top-5 of a checkpoint or an artefact, on "
        "windows and masks that never change; the same by length of the text; and its "
        "pseudo-perplexity.",
    )
    parser.add_argument("subject", type=Path, help="a run, a checkpoint file or an artefact")
    parser.add_argument("--data", type=Path, nargs="+", help="text files; the last tenth is scored")
    parser.add_argument("--length", type=int, help="tokens in a window (64, or what fits)")
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"mask draws ({DRAWS})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        subject = load_subject(options.subject)
        ids = held_out_ids(subject, options.data)
        found = evaluate(subject.guesser, ids, length=options.length, draws=options.draws)
    except (ValueError, OSError) as error:
        print(f"maskwright-evaluate: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    said = json.dumps(dataclasses.asdict(found)) if options.json else str(found)
    print(said)  # noqa: T201 the command's output
    return 0


if __name__ == "__main__":
    sys.exit(main())
