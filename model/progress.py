"""What a person sees while text is tokenised and an encoder trains."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from model.config import Recipe
from model.report import Record, TensorBoard

# Shorter texts are tokenised before one could read it.
CHARACTERS_WORTH_A_BAR = 10_000_000
# Of training, without a terminal and its bar: between lines that say how far a run is.
SECONDS_OF_SILENCE = 60


class Progress:
    """A progress bar on a terminal, a line each minute elsewhere, and one for each held-out score.

    Args:
        shown: False for processes that keep quiet.
    """

    def __init__(self, *, shown: bool) -> None:
        # A text's ":dog:" is no emoji.
        self._console = Console(stderr=True, quiet=not shown, emoji=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        on_a_terminal = shown and self._console.is_terminal
        self._bars = Bars(*columns, console=self._console, disable=not on_a_terminal)
        self._shown = shown
        self._board: TensorBoard | None = None

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()
        if self._board is not None:
            self._board.close()

    def tokenising(self, n_characters: int) -> Callable[[int, int], None]:
        """What to tell of characters done and tokens made."""
        if n_characters < CHARACTERS_WORTH_A_BAR:
            return lambda characters, tokens: None
        bar = self._bars.add_task("tokenising", total=int(n_characters * 0.9), figures="")
        task = self._bars.tasks[bar]

        def tell(characters: int, tokens: int) -> None:
            speed = characters / max(task.elapsed or 0.0, 1e-9)
            figures = f"{tokens:,} tokens  {speed / 1e6:.1f} M characters/s"
            self._bars.update(bar, completed=characters, figures=figures)

        return tell

    def counting(self, what: str, total: int) -> Callable[[int], None]:
        """What to tell of how many more are done."""
        bar = self._bars.add_task(what, total=total, figures="")

        def tell(done: int) -> None:
            self._bars.update(bar, advance=done)

        return tell

    def teaching(self) -> Callable[[int, int], None]:
        """What to tell of sentences whose vectors are at hand, of how many."""
        bar = self._bars.add_task("teacher's vectors", total=None, figures="")

        def tell(n_done: int, n_sentences: int) -> None:
            figures = f"{n_done:,} of {n_sentences:,} sentences"
            self._bars.update(bar, completed=n_done, total=n_sentences, figures=figures)

        return tell

    def training(self, recipe: Recipe, *, board: Path | None) -> Callable[[int, Record], None]:
        """What to tell of a run's record.

        Args:
            board: Where TensorBoard's logs go as well, if anywhere.
        """
        if board is not None and self._shown:
            self._board = TensorBoard(board)
        total = recipe.seconds or recipe.steps
        bar = self._bars.add_task("training", total=total, figures="")
        told: int | None = None
        spoke = 0.0

        def tell(step: int, record: Record) -> None:
            nonlocal told, spoke
            loss, speed = record.train[-1][1], f"{record.tokens_per_second:,.0f} tokens/s"
            done = record.step_seconds if recipe.seconds else step
            figures = f"step {step:,}  loss {loss:.3f}  {speed}"
            self._bars.update(bar, completed=done, figures=figures)
            # A resumed run's record holds scores that were shown when they were made.
            # What a second stage starts with is scored at step 0.
            told = (step - recipe.log_every or -1) if told is None else told
            likeness = dict(record.likeness)
            scored = [
                (at, score, text)
                for (at, score), (_, text) in zip(record.held_out, record.samples, strict=True)
                if at > told
            ]
            for at, score, text in scored:
                alike = f", Spearman (times 100) {likeness[at]:.1f}" if at in likeness else ""
                self._console.print(
                    f"step {at}: training loss {loss:.3f}, held-out {score}{alike}, {speed}",
                    soft_wrap=True,
                )
                self._console.print(f"[dim]{escape(text)}[/dim]", soft_wrap=True)
            told = step
            if scored:
                spoke = record.step_seconds
            elif self._bars.disable and record.step_seconds - spoke >= SECONDS_OF_SILENCE:
                spoke = record.step_seconds
                self._console.print(f"{figures}, {done / total:.0%} done", soft_wrap=True)
            if self._board is not None:
                self._board.tell(step, record, scored)

        return tell
