"""The training loop and the command `maskwright-train`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from model.batches import Sampler
from model.checkpoint import save_checkpoint
from model.config import PRESETS, SIZES, EncoderConfig, Recipe, check_choice, to_json
from model.corpus import REMOTES, Corpus, fetch, from_files, shipped
from model.encoder import Encoder, n_parameters
from model.evaluate import DRAWS, Score, held_out_score, windows_of
from model.feedforward import FEEDFORWARDS
from model.mixers import MIXERS
from model.objective import masked_loss
from model.optimizer import OPTIMIZERS
from model.report import Record, write_report
from model.tokenizer import TRAINERS, Tokenizer

# Windows scored on the way; the last score takes all of them and every draw.
WINDOWS_ON_THE_WAY = 256


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides what a training run computes."""

    config: EncoderConfig
    recipe: Recipe
    corpus: Corpus
    tokenizer: Tokenizer
    seed: int = 0

    def summary(self, encoder: Encoder, *, step: int) -> dict[str, Any]:
        """What a checkpoint, a report and a model card say of the run."""
        corpus = self.corpus
        return {
            "step": step,
            "seed": self.seed,
            "n_parameters": n_parameters(encoder),
            "recipe": to_json(self.recipe),
            "corpus": {
                "name": corpus.name,
                "sha256": corpus.sha256,
                "n_characters": len(corpus.text),
                "licence": corpus.licence,
            },
        }


def train(
    run: Run, out: Path, *, tell: Callable[[int, Record], None] = lambda step, record: None
) -> Record:
    """Train and leave a checkpoint, a report and a plot in `out`.

    An interrupt (Ctrl-C) ends the run early and leaves the same files.

    Args:
        tell: Is told every `log_every` steps.
    """
    torch.manual_seed(run.seed)
    recipe, tokenizer = run.recipe, run.tokenizer
    check_choice("optimizer", recipe.optimizer, OPTIMIZERS)
    training_text, held_out_text = run.corpus.split()
    held_out_ids = tokenizer.encode_corpus(held_out_text)
    encoder = Encoder(run.config)
    # What the last step could not score is refused before the first.
    windows_of(held_out_ids, encoder=encoder, tokenizer=tokenizer, length=recipe.eval_length)
    optimizers = OPTIMIZERS[recipe.optimizer](encoder, recipe)
    sampler = Sampler(
        tokenizer.encode_corpus(training_text), tokenizer=tokenizer, recipe=recipe, seed=run.seed
    )

    def score(**limits: int) -> Score:
        return held_out_score(
            encoder, held_out_ids, tokenizer=tokenizer, length=recipe.eval_length, **limits
        )

    def save(step: int, **more: Any) -> dict[str, Any]:
        summary = run.summary(encoder, step=step) | {"cost": record.cost()} | more
        save_checkpoint(out, encoder=encoder, tokenizer=tokenizer, summary=summary)
        return summary

    record, done, recent = Record(), 0, 0.0
    try:
        for step in range(1, recipe.steps + 1):
            batch = sampler.draw()
            loss = masked_loss(encoder, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), recipe.clip)
            optimizers.step(step - 1)
            done = step
            recent += loss.item()
            record.n_tokens += batch.ids.numel()
            if step % recipe.log_every == 0:
                record.train.append((step, recent / recipe.log_every))
                recent = 0.0
                tell(step, record)
            if step % recipe.eval_every == 0 and step < recipe.steps:
                record.held_out.append((step, score(draws=1, max_windows=WINDOWS_ON_THE_WAY)))
                save(step)
    except KeyboardInterrupt:
        pass  # the step at hand was not taken; what was done is scored and kept
    final = score()
    record.held_out.append((done, final))
    held_out = dataclasses.asdict(final) | {"length": recipe.eval_length, "draws": DRAWS}
    write_report(out, record, save(done, held_out=held_out))
    return record


def main(arguments: list[str] | None = None) -> int:
    """The command `maskwright-train`; 0 if the run ended as planned, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    try:
        run = _run(options)
        out = options.out or Path("runs") / f"{options.preset}-{options.mixer}"
        record = _train_with_progress(run, out)
    except (ValueError, OSError) as error:
        print(f"maskwright-train: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    step, score = record.held_out[-1]
    print(f"step {step}: held-out {score}")  # noqa: T201 the command's output
    print(f"wrote {out}; export it with: maskwright-export {out} DIRECTORY")  # noqa: T201 likewise
    return 0 if step == run.recipe.steps else 130


def _train_with_progress(run: Run, out: Path) -> Record:
    columns = (
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("training", total=run.recipe.steps, figures="")
        said = 0

        def tell(step: int, record: Record) -> None:
            nonlocal said
            loss = record.train[-1][1]
            figures = f"loss {loss:.3f}  {record.tokens_per_second:,.0f} tokens/s"
            progress.update(bar, completed=step, figures=figures)
            for scored, score in record.held_out[said:]:
                line = f"step {scored}: training loss {loss:.3f}, held-out {score}"
                console.print(f"{line}, {record.tokens_per_second:,.0f} tokens/s", soft_wrap=True)
            said = len(record.held_out)

        return train(run, out, tell=tell)


def _run(options: argparse.Namespace) -> Run:
    preset = PRESETS[options.preset]
    given = _given(options, "steps", "tokenizer", "vocab_size")
    recipe = dataclasses.replace(preset.recipe, **given)
    corpus = _corpus(options)
    texts = [corpus.text] if recipe.tokenizer == "char" else [corpus.split()[0]]
    tokenizer = TRAINERS[recipe.tokenizer](texts, vocab_size=recipe.vocab_size)
    config = dataclasses.replace(preset, recipe=recipe).encoder_config(
        mixer=options.mixer, vocab_size=tokenizer.vocab_size, size=options.size
    )
    config = dataclasses.replace(config, **_given(options, "activation", "dropout"))
    # A preset's windows fill its rows, without room for [CLS] and [SEP].
    longest = config.max_tokens - tokenizer.n_wrap
    recipe = dataclasses.replace(recipe, eval_length=min(recipe.eval_length, longest))
    return Run(config=config, recipe=recipe, corpus=corpus, tokenizer=tokenizer, seed=options.seed)


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that were given: they go before the preset's."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _corpus(options: argparse.Namespace) -> Corpus:
    if options.text:
        return from_files(options.text)
    return fetch(options.corpus) if options.corpus else shipped()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-train",
        description="Train a masked-language-model encoder. Leaves a checkpoint, report.json and "
        "loss.png; Ctrl-C ends early and leaves the same.",
    )
    parser.add_argument("--preset", choices=PRESETS, default="shakespeare")
    parser.add_argument("--mixer", choices=MIXERS, default="mhsa")
    parser.add_argument("--size", choices=SIZES, help="other width, depth and heads")
    parser.add_argument("--activation", choices=FEEDFORWARDS, help="other than the preset's")
    parser.add_argument("--dropout", type=float, help="share dropped, other than the preset's")
    parser.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="UTF-8 text, .xz too")
    parser.add_argument("--corpus", choices=REMOTES, help="download a public corpus")
    parser.add_argument("--tokenizer", choices=TRAINERS, help="other than the preset's")
    parser.add_argument("--vocab-size", type=int, help="ids of a bpe or wordpiece vocabulary")
    parser.add_argument("--steps", type=int, help="optimizer steps, other than the preset's")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same losses (0)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (every core)")
    parser.add_argument("--out", type=Path, help="directory (runs/PRESET-MIXER)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
