"""The command `maskwright-train`."""

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import torch

from model.checkpoint import Checkpoint, blended_with, load_checkpoint
from model.config import PRESETS, recipe_from_json
from model.corpus import Text, fetch, shipped
from model.demo_corpus import built
from model.devices import Workers, workers
from model.embedding import SECOND_STAGE, EmbedRecipe, SentenceLoss
from model.guesser import guesser
from model.lesson import lesson
from model.options import parser
from model.pairs import pairs_of_file
from model.progress import Progress
from model.report import Record
from model.similarity import pairs_of, similarity
from model.sources import MIXES
from model.streams import dataset, sampled, text_of_files
from model.teacher import TEACHERS, Teacher, teacher_directory
from model.tokenizer import TRAINERS, Tokenizer, train_wordpiece
from model.tokens import tokenised
from model.train import Likeness, Run, train
from model.words import word_embedding

# A vocabulary is much the same from a part of a long text.
CHARACTERS_FOR_A_VOCABULARY = 64_000_000
# What a checkpoint says of where its text and lessons came from, and `--resume` takes from there.
SOURCE = ("text", "corpus", "dataset", "column", "split")
LESSONS = ("teacher", "pairs", "sts")
# By the second stage.
KEPT = ("tokenizer", "vocab_size", "size", "activation", "norm", "dropout", "words")
RECIPE = (
    *("tokenizer", "vocab_size", "row_lengths", "line_start_share", "batch_tokens", "accumulate"),
    *("steps", "seconds"),
    *("mask_rate", "optimizer", "lr", "muon_lr", "warmup_steps", "precision", "compile"),
    *("eval_length", "eval_every", "checkpoint_every", "log_every"),
)


def main(arguments: list[str] | None = None) -> int:
    """Train; 0 if the run ended as planned, 130 if interrupted, 2 if it could not go on."""
    options = parser().parse_args(arguments)
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
        if checkpoint:
            run = _resumed(options, checkpoint, progress)
        elif options.stage == "embed":
            run = _second_stage(options, progress)
        else:
            run = _run(options)
        out, sts = _out(options), run.source.get("sts")
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
            likeness=_likeness(Path(sts), run.tokenizer) if sts else None,
            tell=progress.training(
                run.recipe, board=out / "tensorboard" if options.board else None
            ),
            stop=stop,
        )
    interrupted = stop.is_set() and not record.complete  # a stop while it scores ends it no sooner
    if here.first:
        _say_the_end(record, out, interrupted=interrupted)
    return 130 if interrupted else 0


def _say_the_end(record: Record, out: Path, *, interrupted: bool) -> None:
    step, score = record.held_out[-1]
    print(f"step {step}: held-out {score}")  # noqa: T201 the command's output
    for at, likeness in record.likeness[-1:]:
        print(f"step {at}: Spearman (times 100) {likeness:.1f}")  # noqa: T201 likewise
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
    name = f"{options.preset}-{options.mixer}"
    if options.stage == "embed":
        name = f"{options.start.resolve().name}-embed"
    return options.out or Path("runs") / name


def _run(options: argparse.Namespace) -> Run:
    if given := _given(options, "start", "blend", *LESSONS):
        raise ValueError(f"{_flags(given)}: for --stage embed only")
    preset = PRESETS[options.preset]
    recipe = dataclasses.replace(preset.recipe, **_recipe_given(options))
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
    words = None
    if options.words:
        teacher = Teacher(teacher_directory(options.words))
        words = word_embedding(teacher, tokenizer, d_model=config.d_model, seed=options.seed)
        name = options.words if options.words in TEACHERS else Path(options.words).resolve().name
        source["words"] = f"{name}, sha256 {teacher.sha256[:12]}…"
    return Run(
        config=config,
        recipe=recipe,
        corpus=corpus,
        tokenizer=tokenizer,
        seed=options.seed,
        source=source,
        words=words,
    )


def _second_stage(options: argparse.Namespace, progress: Progress) -> Run:
    """A run that begins with the weights of another, and learns vectors of sentences as well."""
    if options.start is None:
        raise ValueError("--stage embed goes on from a run: name it with --from")
    if given := _given(options, *KEPT):
        raise ValueError(
            f"the stage embed keeps the run's encoder and vocabulary; leave out: {_flags(given)}"
        )
    start = load_checkpoint(options.start)
    if options.blend:
        start = blended_with(start, *options.blend)
    summary = start.summary
    recipe = recipe_from_json(summary["recipe"])
    recipe = dataclasses.replace(recipe, **SECOND_STAGE | _recipe_given(options))
    text = _given(options, *SOURCE) or summary.get("source", {})
    source = {name: _plain(text[name]) for name in SOURCE if text.get(name)}
    source |= {name: _plain(value) for name, value in _given(options, *LESSONS).items()}
    if words := summary.get("source", {}).get("words"):
        source["words"] = words
    if (teacher := source.get("teacher")) and teacher not in TEACHERS and Path(teacher).is_dir():
        source["teacher"] = _plain(Path(teacher))
    told = ("step", "held_out", "cost", "blend")
    first_stage: dict[str, Any] = {name: summary[name] for name in told if name in summary}
    if "embed" in summary:
        first_stage["first_stage"] = summary["embed"]["first_stage"]
    run = Run(
        config=start.config,
        recipe=recipe,
        corpus=_text_of(source),
        tokenizer=start.tokenizer,
        seed=options.seed,
        source=source,
        start=start,
    )
    embed = EmbedRecipe(**_given(options, "n_sentences", "batch_sentences", "weight"))
    return _with_lessons(run, embed, start, progress, first_stage=first_stage)


def _resumed(options: argparse.Namespace, checkpoint: Checkpoint, progress: Progress) -> Run:
    """The run that a checkpoint is of; its text is found where it was, unless another is named."""
    summary = checkpoint.summary
    source = summary.get("source", {})
    if given := _given(options, *SOURCE):
        source = {name: source[name] for name in (*LESSONS, "words") if name in source}
        source |= {name: _plain(value) for name, value in given.items()}
    source |= {name: _plain(value) for name, value in _given(options, *LESSONS).items()}
    run = Run(
        config=checkpoint.config,
        recipe=recipe_from_json(summary["recipe"]),
        corpus=_text_of(source),
        tokenizer=checkpoint.tokenizer,
        seed=summary["seed"],
        source=source,
    )
    if (embed := summary.get("embed")) is None or checkpoint.record is None:
        return run
    recipe = EmbedRecipe(**{f.name: embed[f.name] for f in dataclasses.fields(EmbedRecipe)})
    return _with_lessons(run, recipe, checkpoint, progress, first_stage=embed["first_stage"])


def _likeness(path: Path, tokenizer: Tokenizer) -> Likeness:
    """Scores an encoder's vectors on the pairs of a file."""
    pairs = pairs_of(path)
    return lambda encoder: similarity(guesser(encoder, tokenizer), path.name, pairs).spearman


def _with_lessons(
    run: Run,
    recipe: EmbedRecipe,
    checkpoint: Checkpoint,
    progress: Progress,
    *,
    first_stage: dict[str, Any],
) -> Run:
    """The run with the sentence loss that its source and recipe describe."""
    teacher, pairs = run.source.get("teacher"), run.source.get("pairs")
    sentences = SentenceLoss(
        recipe,
        encoder=checkpoint.encoder,
        tokenizer=run.tokenizer,
        seed=run.seed,
        lesson=lesson(run.corpus, teacher, n_sentences=recipe.n_sentences, tell=progress.teaching())
        if teacher
        else None,
        pairs=pairs_of_file(Path(pairs)) if pairs else None,
        first_stage=first_stage,
    )
    return dataclasses.replace(run, sentences=sentences)


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


def _text_of(source: Mapping[str, Any]) -> Text:
    found = argparse.Namespace(**{name: source.get(name) for name in SOURCE})
    found.text = [Path(path) for path in found.text or []]
    return _text(found)


def _recipe_given(options: argparse.Namespace) -> dict[str, Any]:
    given = _given(options, *RECIPE)
    if "row_lengths" in given:
        given["row_lengths"] = tuple(given["row_lengths"])
    return given


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that were given: they go before the preset's."""
    found = {name: getattr(options, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _flags(given: Mapping[str, Any]) -> str:
    names = {"start": "from", "words": "words-from"}
    return ", ".join(f"--{names.get(name, name).replace('_', '-')}" for name in given)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.resolve())
    return [_plain(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
