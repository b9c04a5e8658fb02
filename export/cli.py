"""The command `maskwright-export`."""

import argparse
import re
import sys
from pathlib import Path

from export.artefact import load_artefact
from export.build import STORED, build_artefact
from export.hugging_face import write_hugging_face
from export.subject import held_out_of
from export.triton import write_repository
from export.variants import PLANS, add_variant
from model.checkpoint import blended_with, load_checkpoint
from model.corpus import shipped

FORMATS = ("artefact", "transformers", "triton")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def main(arguments: list[str] | None = None) -> int:
    """Export a checkpoint to an artefact; 0 if it was written."""
    parser = argparse.ArgumentParser(
        prog="maskwright-export",
        description="Write a trained encoder as ONNX graphs with one weights file, a manifest and "
        "a proof that they say what torch says.",
    )
    parser.add_argument(
        "checkpoint", type=Path, nargs="?", help="a run's directory or checkpoint file"
    )
    parser.add_argument("out", type=Path, help="directory to write the artefact to, or to extend")
    parser.add_argument("--name", help="what requests call the model (default: OUT's last part)")
    parser.add_argument(
        "--prompt",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="a text that the model was trained to see before others, for prompt_name in requests; "
        "may be repeated",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="artefact: what maskwright-serve serves; transformers: a directory for "
        "transformers.js and optimum; triton: a model repository of Triton Inference Server "
        "(artefact)",
    )
    parser.add_argument(
        "--blend",
        nargs=2,
        metavar=("RUN", "SHARE"),
        help="export weights that lie such a share of the way from the checkpoint's to RUN's, "
        "between a second stage and the first",
    )
    parser.add_argument(
        "--weights",
        choices=STORED,
        default=STORED[0],
        help="how they lie on disk; fp16 takes half the room, and graphs compute in fp32 (fp32)",
    )
    parser.add_argument(
        "--notes",
        type=Path,
        metavar="FILE",
        help="Markdown for the model card: what it is for, scores, known failures",
    )
    parser.add_argument(
        "--add",
        choices=PLANS,
        metavar="PRECISION",
        help="extend the artefact OUT, without a checkpoint, by a precision: int8 for CPUs, fp16 "
        "for CUDA, bf16 for OpenVINO (on a machine that has it)",
    )
    parser.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="held-out text to compare the precision with fp32 on (the held-out part of the corpus "
        "it was trained on, if that is built; else the last tenth of the plays that ship)",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    options = parser.parse_args(arguments)
    if (options.add is None) == (options.checkpoint is None):
        parser.error("a checkpoint and OUT are wanted, or --add PRECISION and OUT")
    if options.format != "artefact" and (
        options.prompt or options.notes or options.weights != "fp32"
    ):
        parser.error("--prompt, --notes and --weights are of artefacts")
    try:
        if options.add is not None:
            text = options.text.read_text("utf-8") if options.text else _held_out(options.out)
            add_variant(options.out, options.add, text=text, tell=_say)
            return 0
        name = options.name or options.out.resolve().name
        if not NAME.fullmatch(name):
            raise ValueError(f"name={name!r}; up to 64 of a-z, 0-9, '.', '_' and '-'")
        _export(options, name)
    except (ValueError, OSError) as error:
        print(f"maskwright-export: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    serve = f"; serve it with: maskwright-serve --model {options.out}"
    _say(f"wrote {options.out}{serve if options.format == 'artefact' else ''}")
    return 0


def _export(options: argparse.Namespace, name: str) -> None:
    checkpoint, how = load_checkpoint(options.checkpoint), {"replace": options.force, "tell": _say}
    if options.blend:
        checkpoint = blended_with(checkpoint, *options.blend)
    if options.format == "triton":
        write_repository(checkpoint, options.out, name=name, **how)
    elif options.format == "transformers":
        write_hugging_face(checkpoint, options.out, **how)
    else:
        build_artefact(
            checkpoint,
            options.out,
            name=name,
            weights=options.weights,
            prompts=dict(map(_prompt, options.prompt)),
            notes=options.notes.read_text("utf-8") if options.notes else "",
            **how,
        )


def _held_out(directory: Path) -> str:
    """Text like that which the artefact was trained on, but not of it, if there is any here."""
    artefact = load_artefact(directory)
    try:
        return held_out_of(artefact.manifest["training"], name=artefact.name)
    except ValueError:  # it is not here
        return shipped().held_out()


def _prompt(text: str) -> tuple[str, str]:
    name, equals, prompt = text.partition("=")
    if not (name and equals and prompt):
        raise ValueError(f"prompt={text!r}; NAME=TEXT is wanted")
    return name, prompt


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 the command's output


if __name__ == "__main__":
    sys.exit(main())
