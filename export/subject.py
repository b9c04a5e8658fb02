"""What is scored: a checkpoint, or a variant of an artefact, behind one interface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from export.artefact import Artefact, Variant, load_artefact
from model.checkpoint import load_checkpoint
from model.corpus import shipped
from model.demo_corpus import built
from model.guesser import Guesser, Ids, Numbers, guesser
from model.sources import MIXES
from model.streams import text_of_files
from model.tokenizer import Tokenizer


@dataclass(frozen=True)
class Subject:
    """A checkpoint or an artefact, ready to be scored.

    Attributes:
        precision: What its answers are computed in.
        training: Its training summary, empty where there is none.
        artefact: Its directory, if it is one.
    """

    name: str
    mixer: str
    precision: str
    guesser: Guesser
    training: Mapping[str, Any]
    artefact: Path | None = None


def load_subject(path: Path, *, precision: str | None = None) -> Subject:
    """What lies at `path`: a run's directory or checkpoint file, or an artefact's directory.

    Args:
        precision: Of an artefact's variants the one to score; fp32 if None.

    Raises:
        ValueError: It is neither, is damaged, or has no such precision.
        FileNotFoundError: There is nothing.
    """
    if (path / "manifest.json").exists():
        return _artefact(path, precision or "fp32")
    checkpoint = load_checkpoint(path)
    if precision not in (None, "fp32"):
        raise ValueError(f"precision={precision!r}; a checkpoint is scored in fp32")
    return Subject(
        path.resolve().name if path.is_dir() else path.resolve().parent.name,
        checkpoint.config.mixer,
        "fp32",
        guesser(checkpoint.encoder, checkpoint.tokenizer),
        checkpoint.summary,
    )


def encode_variant(artefact: Artefact, precision: str) -> Variant:
    """The graph that answers in a precision.

    Raises:
        ValueError: There is none, with those there are.
    """
    of = [v for v in artefact.variants if v.graph == "encode"]
    found = next((v for v in of if v.precision == precision), None)
    if found is None:
        there = ", ".join(dict.fromkeys(v.precision for v in of))
        raise ValueError(f"precision={precision!r}; {artefact.name} has: {there}")
    return found


def _artefact(path: Path, precision: str) -> Subject:
    from export.parity import session_of  # ONNX Runtime, which checkpoints do without

    artefact = load_artefact(path)
    manifest = artefact.manifest
    session = session_of(path / encode_variant(artefact, precision).file, precision)

    def run(output: str, ids: Ids, positions: Ids) -> Numbers:
        lengths = np.full(len(ids), ids.shape[1])
        feeds = {"input_ids": ids, "lengths": lengths, "mask_positions": positions}
        found: Numbers = session.run([output], feeds)[0]
        return found

    return Subject(
        artefact.name,
        manifest["mixer"],
        precision,
        Guesser(
            predict=lambda ids, positions: run("mask_logprobs", ids, positions),
            pool=lambda ids, pooling: run(f"pooled_{pooling}", ids, np.zeros((0, 2), np.int64)),
            poolings=tuple(manifest["poolings"]),
            tokenizer=Tokenizer.from_json(artefact.tokenizer_json),
            max_tokens=manifest["max_tokens"],
        ),
        manifest["training"],
        path,
    )


def held_out_text(subject: Subject, data: Sequence[Path] | None) -> str:
    """The held-out part of the given files, else of the corpus it was trained on, if that is here.

    Raises:
        ValueError: It was trained on another text, or on a corpus that is not built, and no file is
            given.
    """
    if data:
        return text_of_files(data).held_out()
    return held_out_of(subject.training, name=subject.name)


def held_out_of(training: Mapping[str, Any], *, name: str) -> str:
    """The held-out part of the corpus that a training summary names, if that is here.

    Raises:
        ValueError: It was trained on another text, or on a corpus that is not built.
    """
    text, trained_on = shipped(), training.get("corpus", {})
    # Of a mix, a line is held out by its own hash: whatever was left out or weighted otherwise.
    if (mix := trained_on.get("name", "").split(" ")[0]) in MIXES:
        return built(mix).held_out()
    if trained_on.get("sha256", text.sha256) != text.sha256:
        raise ValueError(f"{name} was trained on {trained_on['name']}; give its text with --data")
    return text.held_out()
