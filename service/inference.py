"""From texts to answers: tokenize, cut to the model's length, queue, wait."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model.tokenizer import Encoded
from service.errors import (
    EmptyText,
    MasksTooFarApart,
    NoMask,
    ServiceError,
    TextTooLong,
    TooManyTexts,
    UnknownModel,
)
from service.metrics import Metrics
from service.models import Model, Work
from service.scheduler import Outcome, Scheduler
from service.settings import Settings

# Tokenizing this many characters takes about a millisecond; more is done off the event loop.
CHARACTERS_ON_THE_LOOP = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a text that the model reads.

    Attributes:
        text: The whole text.
        index: Its place in the list it came in; None if it came by itself.
        ids: Token ids of the part, prefix and suffix included.
        spans: Where each of them stands in the text, in code points; empty for prefix and suffix.
        start, stop: The part, in tokens of the text.
        n_tokens: Tokens of the whole text, without prefix and suffix.
    """

    text: str
    index: int | None
    ids: list[int]
    spans: list[tuple[int, int]]
    start: int
    stop: int
    n_tokens: int

    @property
    def truncated(self) -> bool:
        """Whether something was cut."""
        return self.stop - self.start < self.n_tokens

    def columns_of(self, token_id: int) -> tuple[int, ...]:
        """Where a token stands in `ids`."""
        return tuple(column for column, found in enumerate(self.ids) if found == token_id)


# Picks the first token that is kept when a text is too long: (ids, room) -> start.
Keep = Callable[[Sequence[int], int], int]


def keep_left(ids: Sequence[int], room: int) -> int:
    """Keep the beginning."""
    return 0


def keep_right(ids: Sequence[int], room: int) -> int:
    """Keep the end."""
    return len(ids) - room


class Inference:
    """One model behind one queue."""

    def __init__(
        self, model: Model, scheduler: Scheduler, *, metrics: Metrics, settings: Settings
    ) -> None:
        self.model, self.settings = model, settings
        self._scheduler, self._metrics = scheduler, metrics

    def check_model(self, name: str | None) -> None:
        """Refuse a request for another model than the one served."""
        if name is not None and name != self.model.name:
            raise UnknownModel(served=self.model.name)

    async def windows(
        self,
        inputs: str | Sequence[str],
        *,
        task: str,
        truncate: bool | None = None,
        keep: Keep = keep_left,
    ) -> list[Window]:
        """The texts as the model reads them.

        Raises:
            TooManyTexts, EmptyText, TextTooLong: With the text's index where there is a list.
        """
        texts = [inputs] if isinstance(inputs, str) else inputs
        if len(texts) > self.settings.max_texts:
            raise TooManyTexts(n_texts=len(texts), limit=self.settings.max_texts)
        cut = self.settings.auto_truncate if truncate is None else truncate
        listed = not isinstance(inputs, str)

        def work() -> list[Window]:
            return [
                self._window(text, index if listed else None, cut=cut, keep=keep)
                for index, text in enumerate(texts)
            ]

        begun = time.perf_counter()
        short = sum(map(len, texts)) <= CHARACTERS_ON_THE_LOOP
        windows = work() if short else await asyncio.to_thread(work)
        self._metrics.tokenize_seconds.labels(task).observe(time.perf_counter() - begun)
        self._metrics.truncated.labels(task).inc(sum(window.truncated for window in windows))
        return windows

    async def answers(
        self, windows: Sequence[Window], works: Sequence[Work], *, graph: str, task: str
    ) -> list[Outcome]:
        """The model's answers to the work of each window, in order; a failure names its text.

        Raises:
            Overloaded, Draining: Nothing was queued.
            BackendError, NonFinite: The first text that failed.
        """
        futures = self._scheduler.submit([self.model.item(graph, work) for work in works])
        try:
            outcomes = await asyncio.gather(*futures)
        except ServiceError as error:
            error.index = next(
                window.index
                for window, future in zip(windows, futures, strict=True)
                if future.done() and not future.cancelled() and future.exception() is error
            )
            raise
        finally:
            for future in futures:
                future.cancel()  # the client left, or another text failed
        self._metrics.texts.labels(task).inc(len(works))
        return outcomes

    def mask_columns(self, window: Window) -> tuple[int, ...]:
        """Where a text's masks are.

        Raises:
            NoMask: It has none.
        """
        columns = window.columns_of(self.model.tokenizer.mask_id)
        if not columns:
            raise NoMask(index=window.index)
        return columns

    def keep_masks(self, ids: Sequence[int], room: int) -> int:
        """Keep the masks, in the middle of the window.

        Raises:
            MasksTooFarApart: They do not fit.
        """
        mask_id = self.model.tokenizer.mask_id
        columns = [column for column, found in enumerate(ids) if found == mask_id]
        if not columns:
            return 0
        span = columns[-1] + 1 - columns[0]
        if span > room:
            raise MasksTooFarApart(n_tokens=span, limit=room, index=None)
        before = (room - span) // 2
        return min(max(0, columns[0] - before), len(ids) - room)

    def _window(self, text: str, index: int | None, *, cut: bool, keep: Keep) -> Window:
        tokenizer = self.model.tokenizer
        encoded = tokenizer.encode(text)
        n_tokens, room = len(encoded.ids), self.model.max_tokens - tokenizer.n_wrap
        if not n_tokens:
            raise EmptyText(index=index)
        start = 0
        if n_tokens > room:
            if not cut:
                raise TextTooLong(n_tokens=n_tokens, limit=room, index=index)
            try:
                start = keep(encoded.ids, room)
            except ServiceError as error:
                error.index = index
                raise
        return self._part(text, index, encoded, start, min(n_tokens, start + room))

    def _part(
        self, text: str, index: int | None, encoded: Encoded, start: int, stop: int
    ) -> Window:
        tokenizer = self.model.tokenizer
        before, after = encoded.offsets[start][0], encoded.offsets[stop - 1][1]
        spans = [
            *[(before, before)] * len(tokenizer.prefix),
            *encoded.offsets[start:stop],
            *[(after, after)] * len(tokenizer.suffix),
        ]
        ids = tokenizer.wrap(encoded.ids[start:stop])
        return Window(text, index, ids, spans, start, stop, len(encoded.ids))
