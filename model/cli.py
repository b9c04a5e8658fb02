"""The command `maskwright-train`."""

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import torch

from model.checkpoint import Checkpoint, load_checkpoint
from model.config import PRESETS, SIZES, recipe_from_json
from model.corpus import REMOTES, Text, fetch, shipped
from model.demo_corpus import built
from model.devices import DEVICES, Workers, workers
from model.feedforward import FEEDFORWARDS
from model.layers import NORMS
from model.mixers import MIXERS
from model.optimizer import OPTIMIZERS
from model.progress import Progress
from model.report import Record
from model.sources import MIXES
from model.streams import dataset, sampled, text_of_files
from model.tokenizer import TRAINERS, Tokenizer, train_wordpiece
from model.tokens import tokenised
from model.train import Run, train

# A vocabulary is much the same from a part of a long text.
CHARACTERS_FOR_A_VOCABULARY = 64_000_000
# What a checkpoint says of where its text came from, and `--resume` takes from there.
SOURCE = ("text", "corpus", "dataset", "column", "split")
RECIPE = (
    *("tokenizer", "vocab_size", "row_lengths", "line_start_share", "batch_tokens", "accumulate"),
    *("steps", "seconds"),
    *("mask_rate", "optimizer", "lr", "muon_lr", "warmup_steps", "precision", "compile"),
    *("eval_length", "eval_every", "checkpoint_every", "log_every"),
)


def main(arguments: list[str] | None = None) -> int:
    """Train; 0 if the run ended as planned, 130 if interrupted, 2 if it could not go on."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    try:
        with workers(options.device) as here, _stop_at_a_signal() as stop:
            return _train(options, here, stop)
    except (ValueError, OSError) as error:
        print(f"maskwright-train: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2


def _train(options: argparse.Namespace, here: Workers, stop: Event) -> int:
    checkpoint = load_checkpoint(options.resume) if options.resume else None
    with Progress(shown=here.first) as progress:
        run = _resumed(options, checkpoint) if checkpoint else _run(options)
        out = _out(options)
        # One process tokenises; the others find it done.
        if not here.first:
            here.wait()
        tell = progress.tokenising(run.corpus.n_characters)
        tokens = tokenised(run.corpus, run.tokenizer, tell=tell)
        if here.first:
            here.wait()
        record = train(
            run,
            out,
            resume=checkpoint,
            workers=here,
            tokens=tokens,
            tell=progress.training(
                run.recipe, board=out / "tensorboard" if options.board else None
            ),
            stop=stop,
        )
    if here.first:
        _say_the_end(record, out, interrupted=stop.is_set())
    return 130 if stop.is_set() else 0


def _say_the_end(record: Record, out: Path, *, interrupted: bool) -> None:
    step, score = record.held_out[-1]
    print(f"step {step}: held-out {score}")  # noqa: T201 the command's output
    then = (
        f"go on with: maskwright-train --resume {out}"
        if interrupted
        else f"export it with: maskwright-export {out} DIRECTORY"
    )
    print(f"wrote {out}; {then}")  # noqa: T201 likewise


@contextmanager
def _stop_at_a_signal() -> Iterator[Event]:
    """An event that Ctrl-C or SIGTERM sets, so that no step is left half taken; twice ends it."""
    stop = Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _out(options: argparse.Namespace) -> Path:
    if options.resume:
        path: Path = options.resume
        return path if path.is_dir() else path.parent
    return options.out or Path("runs") / f"{options.preset}-{options.mixer}"


def _run(options: argparse.Namespace) -> Run:
    preset = PRESETS[options.preset]
    given = _given(options, *RECIPE)
    if "row_lengths" in given:
        given["row_lengths"] = tuple(given["row_lengths"])
    recipe = dataclasses.replace(preset.recipe, **given)
    corpus = _text(options)
    tokenizer = _vocabulary(corpus, recipe.tokenizer, recipe.vocab_size)
    config = dataclasses.replace(preset, recipe=recipe).encoder_config(
        mixer=options.mixer, vocab_size=tokenizer.vocab_size, size=options.size
    )
    config = dataclasses.replace(config, **_given(options, "activation", "norm", "dropout"))
    # A preset's windows fill its rows, without room for [CLS] and [SEP].
    longest = config.max_tokens - tokenizer.n_wrap
    recipe = dataclasses.replace(recipe, eval_length=min(recipe.eval_length, longest))
    source = {name: _plain(value) for name, value in _given(options, *SOURCE).items()}
    return Run(
        config=config,
        recipe=recipe,
        corpus=corpus,
        tokenizer=tokenizer,
        seed=options.seed,
        source=source,
    )


def _resumed(options: argparse.Namespace, checkpoint: Checkpoint) -> Run:
    """The run that a checkpoint is of; its text is found where it was, unless another is named."""
    summary = checkpoint.summary
    given = {name: _plain(value) for name, value in _given(options, *SOURCE).items()}
    source = given or summary.get("source", {})
    found = argparse.Namespace(**{name: source.get(name) for name in SOURCE})
    found.text = [Path(path) for path in found.text or []]
    return Run(
        config=checkpoint.config,
        recipe=recipe_from_json(summary["recipe"]),
        corpus=_text(found),
        tokenizer=checkpoint.tokenizer,
        seed=summary["seed"],
        source=source,
    )


def _vocabulary(text: Text, kind: str, size: int) -> Tokenizer:
    """Characters of the whole text; pieces of the training part only."""
    if kind == "char":
        return TRAINERS[kind](chain(text.training(), [text.held_out()]), vocab_size=size)
    pieces = sampled(text, n_characters=CHARACTERS_FOR_A_VOCABULARY)
    if kind == "wordpiece":
        return train_wordpiece(pieces, vocab_size=size, words=text.words)
    return TRAINERS[kind](pieces, vocab_size=size)


def _text(options: argparse.Namespace) -> Text:
    if options.text:
        return text_of_files(options.text)
    if options.dataset:
        return dataset(
            options.dataset, column=options.column or "text", split=options.split or "train"
        )
    if options.corpus in MIXES:
        return built(options.corpus)
    return fetch(options.corpus) if options.corpus else shipped()


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that were given: they go before the preset's."""
    found = {name: getattr(options, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    return [str(path.resolve()) for path in value] if isinstance(value, list) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-train",
        description="Train a masked-language-model encoder. Leaves a checkpoint, report.json, "
        "loss.png and a model card; Ctrl-C ends early, leaves the same, and --resume goes on. On "
        "several GPUs or processes: torchrun --nproc-per-node N -m model.cli …",
    )
    parser.add_argument("--preset", choices=PRESETS, default="shakespeare")
    parser.add_argument("--mixer", choices=MIXERS, default="mhsa")
    parser.add_argument("--out", type=Path, help="directory (runs/PRESET-MIXER)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with an unfinished run")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same losses (0)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (every core)")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="auto: CUDA if there is")
    parser.add_argument("--tensorboard", dest="board", action="store_true", help="write its logs")
    text = parser.add_argument_group("text (default: the plays of Shakespeare that ship)")
    text.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="UTF-8 text, .xz too")
    text.add_argument(
        "--corpus",
        choices=(*MIXES, *REMOTES),
        help="one that maskwright-corpus built, or a download",
    )
    text.add_argument("--dataset", metavar="NAME[:CONFIG]", help="Hugging Face data set, or a file")
    text.add_argument("--column", help="the data set's column of text (text)")
    text.add_argument("--split", help="the data set's split (train)")
    text.add_argument("--tokenizer", choices=TRAINERS)
    text.add_argument("--vocab-size", type=int, help="ids of a bpe or wordpiece vocabulary")
    model = parser.add_argument_group("encoder (other than the preset's)")
    model.add_argument("--size", choices=SIZES, help="width, depth and heads")
    model.add_argument("--activation", choices=FEEDFORWARDS)
    model.add_argument("--norm", choices=NORMS)
    model.add_argument("--dropout", type=float, help="share dropped")
    recipe = parser.add_argument_group("recipe (other than the preset's)")
    recipe.add_argument("--steps", type=int, help="optimizer steps")
    recipe.add_argument("--seconds", type=float, help="training time instead of steps")
    recipe.add_argument("--optimizer", choices=OPTIMIZERS)
    recipe.add_argument("--lr", type=float, help="peak rate of AdamW or Adam")
    recipe.add_argument("--muon-lr", type=float, help="peak rate of Muon")
    recipe.add_argument("--warmup-steps", type=int)
    recipe.add_argument("--mask-rate", type=float, help="share of tokens that are predicted")
    recipe.add_argument("--row-lengths", type=int, nargs="+", metavar="N", help="tokens in a row")
    recipe.add_argument(
        "--line-start-share", type=float, help="share of rows that begin where a line does"
    )
    recipe.add_argument("--batch-tokens", type=int, help="tokens in a step")
    recipe.add_argument("--accumulate", type=int, metavar="N", help="parts a step is computed in")
    recipe.add_argument("--precision", choices=("auto", "fp32", "bf16"))
    recipe.add_argument("--compile", choices=("auto", "on", "off"), help="compile the blocks")
    recipe.add_argument("--eval-length", type=int, help="tokens in a held-out window")
    recipe.add_argument("--eval-every", type=int, metavar="STEPS")
    recipe.add_argument("--checkpoint-every", type=int, metavar="STEPS")
    recipe.add_argument("--log-every", type=int, metavar="STEPS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
