"""`make bench-models`: the encoders that `make bench` measures, trained until they say something.

d 256, 6 layers, 256 tokens, each mixer with a vocabulary of about 8,000 and 30,000 pieces of the
plays that ship. Each is trained, then exported with its int8 variant; what is there is kept, and a
run that was stopped goes on. `python -m tests.bench.models [NAME …] [--steps N]`.
"""

import argparse
import dataclasses
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import torch

from export.build import build_artefact
from export.variants import add_variant
from model.checkpoint import FILE_NAME, load_checkpoint
from model.config import SIZES, EncoderConfig, Recipe
from model.corpus import shipped
from model.tokenizer import TRAINERS
from model.train import Run, train

HOME = Path("runs/bench")
MAX_TOKENS = 256
MOST_PIECES = 15000  # that the plays give
# (mixer, tokenizer, pieces)
MODELS = {
    "mhsa-8k": ("mhsa", "wordpiece", 8192),
    "mixer-30k": ("mlp_mixer", "bpe", 30000),
    "mhsa-30k": ("mhsa", "bpe", 30000),
    "mixer-8k": ("mlp_mixer", "wordpiece", 8192),
}
CARRYING = ("mhsa-8k", "mixer-30k")  # the bars are theirs
ALIKE = ("mhsa-8k", "mixer-8k")  # in all but the mixer


def artefact(name: str) -> Path:
    """Where the artefact of a bench model lies."""
    return HOME / name / "artefact"


def run_of(name: str, *, steps: int) -> Run:
    """The training run of a bench model."""
    mixer, kind, vocab_size = MODELS[name]
    corpus = shipped()
    texts = list(corpus.training())
    if vocab_size > MOST_PIECES:
        # The plays have fewer words: pairs of them run together, which no text has, fill up the
        # vocabulary and change nothing about how a text is cut.
        texts.append(re.sub(r"([A-Za-z]+) ([A-Za-z]+)", r"\1\2", texts[0]))
    tokenizer = TRAINERS[kind](texts, vocab_size=vocab_size)
    config = EncoderConfig(
        mixer=mixer,
        vocab_size=tokenizer.vocab_size,
        max_tokens=MAX_TOKENS,
        tied_head=True,
        **SIZES["base"],
    )
    recipe = Recipe(
        tokenizer=kind,
        vocab_size=vocab_size,
        row_lengths=(16, 32, 64, 128, 256),  # the Mixer's weights of every position are trained
        batch_tokens=1024,
        steps=steps,
        eval_length=32,
        eval_every=steps,
        checkpoint_every=25,
    )
    return Run(config=config, recipe=recipe, corpus=corpus, tokenizer=tokenizer)


def make(name: str, *, steps: int, stop: Event) -> None:
    """Train and export one model, unless it is there."""
    out = HOME / name
    if artefact(name).exists():
        return
    found = load_checkpoint(out) if (out / FILE_NAME).exists() else None
    if found is None or found.record is not None:
        run = run_of(name, steps=steps)
        if found is not None:
            run = dataclasses.replace(run, tokenizer=found.tokenizer)

        def tell(step: int, record: object) -> None:
            print(f"{name}: step {step} of {steps}", flush=True)

        train(run, out, resume=found, tell=tell, stop=stop)
    if not stop.is_set():
        build_artefact(load_checkpoint(out), artefact(name), name=name)
        add_variant(artefact(name), "int8", text=shipped().held_out())


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the models that are named, or all; 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="make bench-models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    stop = Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for name in options.models or MODELS:
        make(name, steps=options.steps, stop=stop)
        if stop.is_set():
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
