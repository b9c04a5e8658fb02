"""The training loop: what a run is, one step after another, and what it leaves."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.batches import Sampler
from model.card import run_card
from model.checkpoint import FILE_NAME, Checkpoint, save_checkpoint
from model.config import EncoderConfig, Recipe, check_choice, recipe_from_json, to_json
from model.corpus import Text
from model.devices import Workers, cast, seed_step, settled, uncompiled
from model.embedding import SentenceLoss
from model.encoder import Encoder, n_parameters
from model.evaluate import DRAWS, Score, held_out_score, windows_of
from model.files import write_atomically
from model.objective import MaskedLoss
from model.optimizer import OPTIMIZERS
from model.report import Record, write_report
from model.samples import filled
from model.tokenizer import Tokenizer
from model.tokens import Tokens, tokenised

# Windows scored on the way; the last score takes all of them and every draw.
WINDOWS_ON_THE_WAY = 256

Tell = Callable[[int, Record], None]
Likeness = Callable[[Encoder], float]


class Diverged(ValueError):
    """A loss or gradient is no number; the weights are still those of the step before."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides what a training run computes.

    Attributes:
        source: Where the text came from, as the command was told; for `--resume`.
        start: The checkpoint whose weights it begins with.
        words: The word embedding [V,d_model] that it begins with, drawn at random where it is NaN.
        sentences: The loss that is taken beside the masked one, in the stage of embeddings.
    """

    config: EncoderConfig
    recipe: Recipe
    corpus: Text
    tokenizer: Tokenizer
    seed: int = 0
    source: dict[str, Any] = dataclasses.field(default_factory=dict)
    start: Checkpoint | None = None
    words: NDArray[np.float32] | None = None
    sentences: SentenceLoss | None = None

    def summary(self, encoder: Encoder, *, step: int) -> dict[str, Any]:
        """What a checkpoint, a report and a model card say of the run."""
        corpus = self.corpus
        stage = {} if self.sentences is None else {"embed": self.sentences.summary()}
        return {
            "step": step,
            "seed": self.seed,
            "n_parameters": n_parameters(encoder),
            "config": to_json(self.config),
            "recipe": to_json(self.recipe),
            "corpus": {
                "name": corpus.name,
                "sha256": corpus.sha256,
                "n_characters": corpus.n_characters,
                "licence": corpus.licence,
            },
            "source": self.source,
        } | stage


def train(
    run: Run,
    out: Path,
    *,
    resume: Checkpoint | None = None,
    workers: Workers | None = None,
    tokens: Tokens | None = None,
    likeness: Likeness | None = None,
    tell: Tell = lambda step, record: None,
    stop: Event | None = None,
) -> Record:
    """Train and leave a checkpoint, a report, a plot and a card in `out`.

    Args:
        resume: An unfinished run's checkpoint, to go on from as if it had not been interrupted.
        workers: This process among those that train together.
        tokens: The training text, where it is already tokenised.
        likeness: Scores the encoder's sentence vectors wherever the masked loss is scored.
        tell: Is told every `log_every` steps.
        stop: Once set, the run ends after the step at hand and leaves the same files; its
            checkpoint can be resumed.

    Raises:
        ValueError: The recipe cannot run on this text, or the checkpoint is another run's.
        Diverged: The loss is no number any more.
        OSError: A checkpoint cannot be written; the one before it is whole.
    """
    training = Training(run, out, workers=workers or Workers(), tokens=tokens, likeness=likeness)
    if resume is not None:
        training.restore(resume)
    elif run.start is not None:
        training.look_at_the_start()
    while training.take_step(stopped=stop is not None and stop.is_set()):
        training.look(tell)
    training.finish()
    return training.record


class Training:
    """The state of a run between its steps."""

    def __init__(
        self,
        run: Run,
        out: Path,
        *,
        workers: Workers,
        tokens: Tokens | None,
        likeness: Likeness | None = None,
    ) -> None:
        recipe = settled(run.recipe, workers.device)
        self.run, self.out, self.workers = dataclasses.replace(run, recipe=recipe), out, workers
        check_choice("optimizer", recipe.optimizer, OPTIMIZERS)
        if run.seed < 0:
            raise ValueError(f"seed={run.seed}; at least 0")
        if run.sentences is not None and workers.n > 1:
            raise ValueError(f"{workers.n} processes; sentence vectors are trained by one")
        n_rows = recipe.batch_tokens // max(recipe.row_lengths)
        if max(1, n_rows) < workers.n * recipe.accumulate:
            raise ValueError(
                f"batch_tokens={recipe.batch_tokens} gives {n_rows} rows of "
                f"{max(recipe.row_lengths)}; {workers.n * recipe.accumulate} parts need one each"
            )
        torch.manual_seed(run.seed)
        self.encoder = Encoder(run.config).to(workers.device)
        if run.start is not None:
            self.encoder.load_state_dict(run.start.encoder.state_dict())
        if run.words is not None:
            words = torch.from_numpy(run.words).to(workers.device)
            weight = self.encoder.embedding.weight.data
            weight.copy_(torch.where(words.isnan(), weight, words))
        self._likeness = likeness
        self.held_out_ids = run.tokenizer.encode_corpus(run.corpus.held_out())
        # What the last step could not score is refused before the first.
        windows = windows_of(
            self.held_out_ids,
            run.tokenizer,
            length=recipe.eval_length,
            max_tokens=run.config.max_tokens,
        )
        self._sample = windows[0]
        self.optimizers = OPTIMIZERS[recipe.optimizer](self.encoder, recipe)
        self.sampler = Sampler(
            tokens or tokenised(run.corpus, run.tokenizer),
            tokenizer=run.tokenizer,
            recipe=recipe,
            seed=run.seed,
        )
        if recipe.compile == "on":
            for block in self.encoder.blocks:
                block.compile(dynamic=False)
        self.loss = workers.shared(MaskedLoss(self.encoder))
        self.record = Record()
        self.step = 0
        self._saved: int | None = None

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take up an unfinished run.

        Raises:
            ValueError: The checkpoint is of a finished run, or of another one.
        """
        if checkpoint.record is None:
            raise ValueError("the run is finished: there is nothing to resume")
        mine = self.run.summary(self.encoder, step=0)
        # A recipe of before a field was added stands for the field's default.
        began = checkpoint.summary | {
            "recipe": to_json(recipe_from_json(checkpoint.summary["recipe"]))
        }
        for part in ("seed", "config", "recipe", "corpus"):
            if mine[part] != began[part]:
                raise ValueError(
                    f"the run's {part} is {began[part]}, not {mine[part]}: it goes on as it began"
                )
        self.encoder.load_state_dict(checkpoint.encoder.state_dict())
        self.optimizers.load_state(checkpoint.state)
        self.record = Record.from_json(checkpoint.record)
        self.step = self._saved = checkpoint.summary["step"]
        for stale in self.out.glob(f".{FILE_NAME}.*.part"):
            stale.unlink(missing_ok=True)

    @property
    def finished(self) -> bool:
        """Whether the budget is used up."""
        return self._used >= 1

    @property
    def _used(self) -> float:
        recipe = self.run.recipe
        if recipe.seconds:
            return self.record.step_seconds / recipe.seconds
        return self.step / recipe.steps

    def take_step(self, *, stopped: bool = False) -> bool:
        """Move the weights once, unless the budget is used up or some process is to stop."""
        start = perf_counter()
        recipe, workers = self.run.recipe, self.workers
        if workers.n > 1:
            # The processes must agree: one clock, and one answer to an interrupt.
            stops, seconds = workers.total([float(stopped), self.record.step_seconds])
            stopped, self.record.step_seconds = bool(stops), seconds / workers.n
        if stopped or self.finished:
            return False
        batch = self.sampler.draw(self.step)
        seed_step(self.run.seed, self.step, workers.rank)
        loss, beside = self._gradients(batch), 0.0
        if self.run.sentences is not None:
            with cast(recipe, workers.device):
                beside = self.run.sentences.gradients(self.encoder, self.step)
        norm = torch.nn.utils.clip_grad_norm_(self.encoder.parameters(), recipe.clip)
        if not (math.isfinite(loss + beside) and math.isfinite(norm)):
            raise Diverged(
                self._divergence(loss + beside, float(norm), rows=tuple(batch.ids.shape))
            )
        self.optimizers.step(self.step, used=self._used)
        self.step += 1
        self.record.recent += loss
        self.record.recent_sentences += beside
        self.record.n_tokens += batch.ids.numel()
        self.record.step_seconds += perf_counter() - start
        return True

    def _gradients(self, batch: Any) -> float:
        """Compute this process's share of a batch's gradients; the loss of the whole batch."""
        recipe, workers = self.run.recipe, self.workers
        n_parts, total = recipe.accumulate, torch.zeros((), device=workers.device)
        for i in range(n_parts):
            part = batch.part(workers.rank * n_parts + i, workers.n * n_parts).to(workers.device)
            with (
                workers.without_sync(self.loss, last=i == n_parts - 1),
                cast(recipe, workers.device),
            ):
                loss = self.loss(part.ids, part.positions, part.targets) / len(batch.targets)
                # Gradients are averaged over the processes, and the losses are to be summed.
                (loss * workers.n).backward()
            total += loss.detach()
        return workers.total([total.item()])[0]

    def _divergence(self, loss: float, norm: float, *, rows: tuple[int, ...]) -> str:
        kept = (
            "no checkpoint was written yet"
            if self._saved is None
            else f"the last good checkpoint is of step {self._saved}: {self.out / FILE_NAME}"
        )
        return (
            f"step {self.step + 1}: loss {loss}, gradient norm {norm}, on {rows[0]} rows of "
            f"{rows[1]} tokens (seed {self.run.seed}, draw {self.step}); {kept}. Lower rates "
            "(--lr, --muon-lr) or a longer warm-up help"
        )

    def look(self, tell: Tell) -> None:
        """After a step: log, score and save where their time has come."""
        recipe, step = self.run.recipe, self.step
        if step % recipe.log_every == 0:
            self.record.train.append((step, self.record.recent / recipe.log_every))
            self.record.recent = 0.0
            if self.run.sentences is not None:
                mean = self.record.recent_sentences / recipe.log_every
                self.record.sentences.append((step, mean))
                self.record.recent_sentences = 0.0
        if step % recipe.eval_every == 0 and not self.finished:
            self._score(draws=1, max_windows=WINDOWS_ON_THE_WAY)
        if step % recipe.checkpoint_every == 0 and not self.finished:
            self.save()
        if step % recipe.log_every == 0 and self.workers.first:
            tell(step, self.record)

    def look_at_the_start(self) -> None:
        """Score the weights that a second stage begins with."""
        self._score(draws=1, max_windows=WINDOWS_ON_THE_WAY)

    def _score(self, **limits: int) -> Score:
        if not self.workers.first:
            return Score(math.nan, 0.0, 0, 0.0)
        run = self.run
        with uncompiled(run.recipe):
            found = held_out_score(
                self.encoder,
                self.held_out_ids,
                tokenizer=run.tokenizer,
                length=run.recipe.eval_length,
                **limits,
            )
            sample = filled(self.encoder, self._sample, tokenizer=run.tokenizer)
            if self._likeness is not None:
                self.record.likeness.append((self.step, self._likeness(self.encoder)))
        self.record.held_out.append((self.step, found))
        self.record.samples.append((self.step, sample))
        return found

    def save(self) -> None:
        """Write a checkpoint that a run can go on from."""
        if self.workers.first:
            self._write(self._summary(), unfinished=True)
        self._saved = self.step

    def finish(self) -> None:
        """Score everything held out, and leave the run's files."""
        self.record.complete = self.finished
        if self.workers.first:
            unfinished = self.record.to_json()
            found = self._score()
            held_out = dataclasses.asdict(found)
            held_out |= {"length": self.run.recipe.eval_length, "draws": DRAWS}
            summary = self._summary() | {"held_out": held_out}
            self._write(summary, unfinished=not self.finished, record=unfinished)
            write_report(self.out, self.record, summary)
            card = run_card(summary, name=self.out.name, samples=self.record.samples)
            write_atomically(self.out / "README.md", card.encode())
        self.workers.wait()

    def _summary(self) -> dict[str, Any]:
        return self.run.summary(self.encoder, step=self.step) | {"cost": self.record.cost()}

    def _write(
        self, summary: dict[str, Any], *, unfinished: bool, record: dict[str, Any] | None = None
    ) -> None:
        save_checkpoint(
            self.out,
            encoder=self.encoder,
            tokenizer=self.run.tokenizer,
            summary=summary,
            state=self.optimizers.state() if unfinished else None,
            record=(record or self.record.to_json()) if unfinished else None,
        )
