"""From texts to answers: tokenize, cut to the model's length, queue, wait, say where time went."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from service.errors import NoMask, ServiceError, TooManyTexts, TooMuchWork
from service.metrics import Metrics
from service.models import Model, Work
from service.off_loop import off_the_loop
from service.record import current
from service.registry import Registry
from service.scheduler import Outcome, Scheduler
from service.settings import Settings
from service.windows import Keep, Window, keep_left, window_of

# Tokenizing this many characters takes about a millisecond; more is done off the event loop.
CHARACTERS_ON_THE_LOOP = 4096

Inputs = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


class Service:
    """The loaded models behind one queue."""

    def __init__(
        self, registry: Registry, scheduler: Scheduler, *, metrics: Metrics, settings: Settings
    ) -> None:
        self.registry, self.settings = registry, settings
        self._scheduler, self._metrics = scheduler, metrics

    def on(self, name: str | None, *, task: str, partial: bool = False) -> "Inference":
        """A request to a model, by name, or to the default.

        Args:
            partial: Whether a text that fails is set aside and the others are answered.

        Raises:
            UnknownModel: It is not served.
        """
        model = self.registry.find(name)
        return Inference(
            model, self._scheduler, self._metrics, self.settings, task=task, partial=partial
        )


@dataclass(frozen=True, slots=True)
class Job:
    """One pass of a window through the model; a window may need several."""

    window: Window
    work: Work


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said to a job."""

    window: Window
    work: Work
    value: dict[str, NDArray[Any]]


class Inference:
    """One request to one model.

    Attributes:
        failed: Texts that were set aside, by their index; only where `partial` lets the others on.
    """

    def __init__(
        self,
        model: Model,
        scheduler: Scheduler,
        metrics: Metrics,
        settings: Settings,
        *,
        task: str,
        partial: bool,
    ) -> None:
        self.model, self.settings, self._task = model, settings, task
        self._scheduler, self._metrics, self._partial = scheduler, metrics, partial
        self._begun = time.perf_counter()
        self._tokenize_seconds = self._queue_seconds = self._run_seconds = 0.0
        self._n_texts = self._n_characters = self._n_tokens = 0
        self._truncated: list[int] = []
        self.failed: dict[int, ServiceError] = {}

    async def windows(
        self,
        inputs: Inputs,
        *,
        truncate: bool | None = None,
        keep: Keep = keep_left,
        max_tokens: int | None = None,
    ) -> list[Window]:
        """The texts, or token ids, as the model reads them.

        Args:
            max_tokens: Longest window, prefix and suffix included, if not the model's own.

        Raises:
            TooManyTexts, EmptyText, TextTooLong, InvalidField: With the text's index where there
                is a list.
        """
        texts, listed = _listed(inputs)
        if len(texts) > self.settings.max_texts:
            raise TooManyTexts(n_texts=len(texts), limit=self.settings.max_texts)
        cut = self.settings.auto_truncate if truncate is None else truncate
        tokenizer = self.model.tokenizer
        room = (max_tokens or self.model.max_tokens) - tokenizer.n_wrap

        def window(text: str | Sequence[int], index: int | None) -> Window:
            return window_of(text, index, tokenizer, room=room, cut=cut, keep=keep)

        def work() -> list[Window]:
            numbered = enumerate(texts) if listed else [(None, texts[0])]
            return self._each(((index, text) for index, text in numbered), window)

        begun = time.perf_counter()
        large = sum(map(len, texts)) > CHARACTERS_ON_THE_LOOP
        windows = await off_the_loop(work, large=large)
        seconds = time.perf_counter() - begun
        self._metrics.tokenize_seconds.observe(seconds)
        self._tokenize_seconds += seconds
        current().phases.append(("tokenize", begun, seconds))
        self._count(windows)
        return windows

    def jobs(
        self, windows: Iterable[Window], make: Callable[[Window], Work | Sequence[Work]]
    ) -> list[Job]:
        """The work that each window makes, which may be refused for it."""

        def job(window: Window, index: int | None) -> list[Job]:
            works = make(window)
            return [Job(window, work) for work in ([works] if isinstance(works, Work) else works)]

        made = self._each(((window.index, window) for window in windows), job)
        return [job for jobs in made for job in jobs]

    def check_passes(self, n_passes: int) -> None:
        """Refuse a request whose texts need more passes than one may ask.

        Raises:
            TooMuchWork: Before anything is computed.
        """
        if n_passes > self.settings.max_passes:
            raise TooMuchWork(n_passes=n_passes, limit=self.settings.max_passes)

    async def answers(self, jobs: Sequence[Job], *, graph: str = "encode") -> list[Answer]:
        """The model's answers, in order; of texts that were set aside there are none.

        Raises:
            Overloaded, Draining: Nothing was queued.
            BackendError, NonFinite: The first text that failed, with its index.
        """
        if not jobs:
            return []
        begun = time.perf_counter()
        futures = self._scheduler.submit(
            [self.model.item(graph, job.work) for job in jobs], deadline=current().deadline
        )
        try:
            outcomes = await self._outcomes(futures)
        except ServiceError as error:
            error.index = next(
                job.window.index
                for job, future in zip(jobs, futures, strict=True)
                if future.done() and not future.cancelled() and future.exception() is error
            )
            raise
        finally:
            for future in futures:
                future.cancel()  # the client left, or another text failed
        done = list(zip(jobs, outcomes, strict=True))
        for job, outcome in done:
            if isinstance(outcome, BaseException):
                self.set_aside(job.window.index, outcome)
        good = [(job, o) for job, o in done if isinstance(o, Outcome)]
        queued = max((o.queue_seconds for _, o in good), default=0.0)
        ran = max((o.run_seconds for _, o in good), default=0.0)
        self._queue_seconds += queued
        self._run_seconds += ran
        current().phases += [("queue", begun, queued), ("run", begun + queued, ran)]
        return [
            Answer(job.window, job.work, outcome.value)
            for job, outcome in good
            if job.window.index not in self.failed
        ]

    async def _outcomes(
        self, futures: "Sequence[asyncio.Future[Outcome]]"
    ) -> list[Outcome | BaseException]:
        if len(futures) == 1 and not self._partial:  # most requests need no gathering
            return [await futures[0]]
        return await asyncio.gather(*futures, return_exceptions=self._partial)

    def set_aside(self, index: int | None, error: BaseException) -> None:
        """Keep a text's failure and go on with the others, or raise it if that is not wanted."""
        if not (self._partial and index is not None and isinstance(error, ServiceError)):
            raise error
        error.index = index
        self.failed.setdefault(index, error)

    def beside_failures(self, results: Sequence[tuple[Window, Any]]) -> list[Any]:
        """The results in the order of their texts, each failure in the place of its text."""
        by_index: dict[int, Any] = {index: error.body() for index, error in self.failed.items()}
        for place, (window, result) in enumerate(results):
            by_index[place if window.index is None else window.index] = result
        return [by_index[index] for index in sorted(by_index)]

    def mask_columns(self, window: Window) -> tuple[int, ...]:
        """Where a text's masks are.

        Raises:
            NoMask: It has none.
        """
        columns = window.columns_of(self.model.tokenizer.mask_id)
        if not columns:
            raise NoMask(index=window.index)
        return columns

    def timings(self) -> dict[str, float]:
        """Where the time went so far, in seconds; of several texts the longest."""
        return {
            "tokenize_seconds": self._tokenize_seconds,
            "queue_seconds": self._queue_seconds,
            "run_seconds": self._run_seconds,
            "total_seconds": time.perf_counter() - self._begun,
        }

    def done(self) -> dict[str, str]:
        """Count the request as answered; the headers of its answer, times in milliseconds."""
        seconds = self.timings()
        self._metrics.texts.labels(self._task, self.model.name).inc(
            self._n_texts - len(self.failed)
        )
        self._metrics.truncated.labels(self._task, self.model.name).inc(len(self._truncated))
        self._metrics.total_seconds.observe(seconds["total_seconds"])
        total = str(round(seconds["total_seconds"] * 1000))
        headers = {
            "x-compute-type": self.model.engine.provider.name,
            "x-compute-time": total,
            "x-compute-characters": str(self._n_characters),
            "x-compute-tokens": str(self._n_tokens),
            "x-total-time": total,
            "x-tokenization-time": str(round(seconds["tokenize_seconds"] * 1000)),
            "x-queue-time": str(round(seconds["queue_seconds"] * 1000)),
            "x-inference-time": str(round(seconds["run_seconds"] * 1000)),
        }
        if self._truncated:
            headers["x-truncated-inputs"] = ",".join(map(str, self._truncated))
        if self.failed:
            headers["x-failed-inputs"] = ",".join(map(str, sorted(self.failed)))
        return headers

    @property
    def n_tokens(self) -> int:
        """Tokens that the model read, prefixes and suffixes included."""
        return self._n_tokens

    def _each(
        self, numbered: Iterable[tuple[int | None, Any]], make: Callable[[Any, int | None], Any]
    ) -> list[Any]:
        """What `make` makes of each; a failure is set aside or raised."""
        made = []
        for index, value in numbered:
            try:
                made.append(make(value, index))
            except ServiceError as error:
                self.set_aside(index, error)
        return made

    def _count(self, windows: Sequence[Window]) -> None:
        cut = [window.index or 0 for window in windows if window.truncated]
        self._truncated += cut
        self._n_texts += len(windows) + len(self.failed)
        self._n_characters += sum(len(window.text) for window in windows)
        self._n_tokens += sum(len(window.ids) for window in windows)
        record = current()
        record.n_texts, record.n_tokens = self._n_texts, self._n_tokens


def by_window(answers: Iterable[Answer]) -> Mapping[Window, list[Answer]]:
    """The answers of each window, in order."""
    grouped: dict[Window, list[Answer]] = {}
    for answer in answers:
        grouped.setdefault(answer.window, []).append(answer)
    return grouped


def _listed(inputs: Inputs) -> tuple[Sequence[Any], bool]:
    """(texts, whether they came as a list): a text or a text's ids alone are one."""
    if isinstance(inputs, str) or (inputs and isinstance(inputs[0], int)):
        return [inputs], False
    return inputs, True
