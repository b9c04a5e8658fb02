"""The part of a text that the model reads: its token ids and their places in the text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

from model.tokenizer import Encoded, Tokenizer
from service.errors import EmptyText, InvalidField, MasksTooFarApart, ServiceError, TextTooLong


@dataclass(frozen=True, eq=False)
class Window:
    """The part of a text that the model reads.

    Attributes:
        text: The whole text; empty where token ids came instead.
        index: Its place in the list it came in; None if it came by itself.
        ids: Token ids of the part, prefix and suffix included.
        find: Finds where each of them stands in the text: embedding never asks.
        find_mask: The same of the mask at a column, which is quicker found.
        start, stop: The part, in tokens of the text.
        n_tokens: Tokens of the whole text, without prefix and suffix.
    """

    text: str
    index: int | None
    ids: list[int]
    find: Callable[[], list[tuple[int, int]]]
    find_mask: Callable[[int], tuple[int, int]]
    start: int
    stop: int
    n_tokens: int

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Where each id stands in the text, in code points; empty for prefix and suffix."""
        return self.find()

    @property
    def truncated(self) -> bool:
        """Whether something was cut."""
        return self.stop - self.start < self.n_tokens

    def columns_of(self, token_id: int) -> tuple[int, ...]:
        """Where a token stands in `ids`."""
        return tuple(column for column, found in enumerate(self.ids) if found == token_id)

    def facts(self) -> dict[str, object]:
        """What answers say of it."""
        return {
            "n_tokens": self.n_tokens,
            "kept": (self.start, self.stop),
            "truncated": self.truncated,
        }


# Picks the first token that is kept when a text is too long: (ids, room) -> start.
Keep = Callable[[Sequence[int], int], int]


def keep_left(ids: Sequence[int], room: int) -> int:
    """Keep the beginning."""
    return 0


def keep_right(ids: Sequence[int], room: int) -> int:
    """Keep the end."""
    return len(ids) - room


def keep_around(mask_id: int) -> Keep:
    """Keep the masks, in the middle of the window; MasksTooFarApart if they do not fit."""

    def keep(ids: Sequence[int], room: int) -> int:
        columns = [column for column, found in enumerate(ids) if found == mask_id]
        if not columns:
            return 0
        span = columns[-1] + 1 - columns[0]
        if span > room:
            raise MasksTooFarApart(n_tokens=span, limit=room, index=None)
        before = (room - span) // 2
        return min(max(0, columns[0] - before), len(ids) - room)

    return keep


def window_of(
    text: str | Sequence[int],
    index: int | None,
    tokenizer: Tokenizer,
    *,
    room: int,
    cut: bool,
    keep: Keep,
) -> Window:
    """The window of a text, or of token ids, of at most `room` tokens.

    Raises:
        EmptyText, TextTooLong, MasksTooFarApart, InvalidField: With the text's index.
    """
    if isinstance(text, str):
        encoded = tokenizer.encode(text)
    else:
        given = _unwrapped(checked_ids(text, index, tokenizer), tokenizer)
        nowhere: Callable[[], list[tuple[int, int]]] = partial(list, [(0, 0)] * len(given))
        text, encoded = "", Encoded(given, nowhere, nowhere)
    ids = encoded.ids
    if not ids:
        raise EmptyText(index=index)
    start = 0
    if len(ids) > room:
        if not cut:
            raise TextTooLong(n_tokens=len(ids), limit=room, index=index)
        try:
            start = keep(ids, room)
        except ServiceError as error:
            error.index = index
            raise
    stop = min(len(ids), start + room)

    def spans() -> list[tuple[int, int]]:
        kept = encoded.offsets[start:stop]
        before, after = kept[0][0], kept[-1][1]
        n_before, n_after = len(tokenizer.prefix), len(tokenizer.suffix)
        return [*[(before, before)] * n_before, *kept, *[(after, after)] * n_after]

    own = cache(encoded.own)  # it makes a list of the whole text's

    def mask(column: int) -> tuple[int, int]:
        return own()[start + column - len(tokenizer.prefix)]

    wrapped = tokenizer.wrap(ids[start:stop])
    return Window(text, index, wrapped, spans, mask, start, stop, len(ids))


def checked_ids(ids: Sequence[int], index: int | None, tokenizer: Tokenizer) -> list[int]:
    """Token ids that are all of the vocabulary.

    Raises:
        InvalidField: One is not.
    """
    size = tokenizer.vocab_size
    for place, token_id in enumerate(ids):
        if not 0 <= token_id < size:
            raise InvalidField(
                f"The token id at [{place}] is {token_id}; this vocabulary has 0 to {size - 1}.",
                index=index,
            )
    return list(ids)


def _unwrapped(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """Token ids without the prefix and suffix that /tokenize puts around them."""
    if len(ids) < tokenizer.n_wrap:
        return ids
    inner = ids[len(tokenizer.prefix) : len(ids) - len(tokenizer.suffix)]
    return inner if tokenizer.wrap(inner) == ids else ids
