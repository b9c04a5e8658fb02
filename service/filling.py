"""What may stand at a mask: the likeliest tokens, chosen targets, or several masks jointly."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.artefact import N_TOP
from model.tokenizer import Tokenizer
from service.errors import InvalidField
from service.inference import Answer, Inference, by_window
from service.models import Work
from service.off_loop import off_the_loop
from service.windows import Window

WHOLE, TOP = frozenset({"mask_logprobs"}), frozenset({"top_logprobs", "top_ids"})

Ids = tuple[int, ...]
Ranked = list[tuple[Ids, float]]  # candidates with their log-probabilities, likeliest first


@dataclass(frozen=True)
class Targets:
    """The tokens of the targets of a request, each once.

    Attributes:
        ids: Of each target that can be scored, one or several tokens.
        duplicates: Places of targets with the same tokens as one before them.
        unknown: Places of targets that have a part without a token.
    """

    ids: list[Ids]
    duplicates: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)

    @property
    def longest(self) -> int:
        """Tokens of the longest."""
        return max(map(len, self.ids))


def read_targets(targets: Sequence[str], tokenizer: Tokenizer, *, partial: bool) -> Targets:
    """The tokens of targets.

    Raises:
        InvalidField: One is unknown (with `partial`: all are).
    """
    found = Targets([])
    for place, target in enumerate(targets):
        ids = tokenizer.target_ids(target)
        if not ids:
            found.unknown.append(place)
        elif ids in found.ids:
            found.duplicates.append(place)
        else:
            found.ids.append(ids)
    if found.unknown and not (partial and found.ids):
        raise InvalidField(
            f"parameters.targets[{found.unknown[0]}] has no token in the vocabulary, or a part "
            "that has none; leave it out."
        )
    return found


async def likeliest(
    request: Inference, windows: Sequence[Window], *, top_k: int
) -> dict[Window, list[Ranked]]:
    """For each mask of each window its likeliest tokens, the masks independent of each other."""
    outputs = WHOLE if top_k > N_TOP else TOP
    jobs = request.jobs(windows, lambda w: Work(w.ids, outputs, request.mask_columns(w)))
    answers = await request.answers(jobs)
    return await off_the_loop(
        lambda: {answer.window: _ranked(answer, top_k) for answer in answers},
        large=outputs is WHOLE,  # it sorts the vocabulary
    )


async def of_targets(
    request: Inference, windows: Sequence[Window], targets: Targets, *, top_k: int
) -> dict[Window, list[Ranked]]:
    """For each mask of each window the targets, by their probability over the whole vocabulary.

    A target of several tokens stands in for as many masks at its place, and is scored from left to
    right, each token given those before it: the product of the probabilities that `likeliest` and
    a filled-in text would give. It takes a pass for each of its tokens.
    """
    single = [ids for ids in targets.ids if len(ids) == 1]
    several = [ids for ids in targets.ids if len(ids) > 1]

    def works(window: Window) -> list[Work]:
        columns = request.mask_columns(window)
        picked = [ids[0] for ids in single]
        plain = [Work(window.ids, WHOLE, columns, token_ids=picked)] if single else []
        mask_id = request.model.tokenizer.mask_id
        return plain + [
            work
            for column in columns
            for ids in several
            for work in _steps(window.ids, column, ids, mask_id)
        ]

    jobs = request.jobs(windows, works)
    if several:
        request.check_passes(len(jobs))
    answers = by_window(await request.answers(jobs))
    return {
        window: _by_mask(request, window, iter(of_window), single, several, top_k)
        for window, of_window in answers.items()
    }


def _by_mask(
    request: Inference,
    window: Window,
    answers: Iterator[Answer],
    single: Sequence[Ids],
    several: Sequence[Ids],
    top_k: int,
) -> list[Ranked]:
    """The ranked targets of each mask, from the answers to the works of `of_targets`."""
    columns = request.mask_columns(window)
    plain = next(answers).value["mask_logprobs"].tolist() if single else [[]] * len(columns)
    masks = []
    for logprobs in plain:
        scored = list(zip(single, logprobs, strict=True))
        for ids in several:
            scored.append(
                (ids, sum(float(next(answers).value["mask_logprobs"][0, 0]) for _ in ids))
            )
        masks.append(sorted(scored, key=lambda candidate: -candidate[1])[:top_k])
    return masks


async def jointly(
    request: Inference, windows: Sequence[Window], *, top_k: int
) -> dict[Window, Ranked]:
    """For each window the likeliest fills of all its masks together.

    From left to right, each mask given the fills before it, keeping the `top_k` likeliest at each
    step (a beam): the log-probability of a fill is the sum over its tokens. It takes a pass for the
    first mask and `top_k` for each further one.
    """
    outputs = WHOLE if top_k > N_TOP else TOP
    counted = request.jobs(windows, lambda w: Work(w.ids, outputs, request.mask_columns(w)))
    columns = {job.window: job.work.mask_columns for job in counted}
    request.check_passes(sum(1 + (len(c) - 1) * top_k for c in columns.values()))
    beams: dict[Window, Ranked] = {window: [((), 0.0)] for window in columns}
    for step in range(max(map(len, columns.values()), default=0)):
        going = [window for window in beams if step < len(columns[window])]

        def works(window: Window, step: int = step) -> list[Work]:
            at = columns[window]
            return [
                Work(_filled(window.ids, at, ids), outputs, (at[step],)) for ids, _ in beams[window]
            ]

        answers = by_window(await request.answers(request.jobs(going, works)))
        for window in set(going) - answers.keys():
            del beams[window]  # it failed and was set aside
        grow = partial(_grown, beams, answers, top_k=top_k)
        beams.update(await off_the_loop(grow, large=outputs is WHOLE))
    return beams


def _grown(
    beams: Mapping[Window, Ranked], answers: Mapping[Window, list[Answer]], *, top_k: int
) -> dict[Window, Ranked]:
    """The likeliest fills that are one token longer; the answers are to those of the beams."""
    grown = {}
    for window, of_window in answers.items():
        longer = [
            (before + ids, logprob + more)
            for (before, logprob), answer in zip(beams[window], of_window, strict=True)
            for ids, more in _ranked(answer, top_k)[0]
        ]
        grown[window] = sorted(longer, key=lambda fill: -fill[1])[:top_k]
    return grown


def _steps(ids: Sequence[int], column: int, target: Ids, mask_id: int) -> Iterator[Work]:
    """The works that score a target of several tokens at a mask, one a token."""
    for known, token_id in enumerate(target):
        filled = [*target[:known], *[mask_id] * (len(target) - known)]
        row = [*ids[:column], *filled, *ids[column + 1 :]]
        yield Work(row, WHOLE, (column + known,), token_ids=[token_id])


def _filled(ids: Sequence[int], columns: Sequence[int], fills: Ids) -> list[int]:
    row = list(ids)
    for column, token_id in zip(columns, fills, strict=False):
        row[column] = token_id
    return row


def _ranked(answer: Answer, top_k: int) -> list[Ranked]:
    """The likeliest tokens of each mask of an answer."""
    value: dict[str, NDArray[Any]] = answer.value
    if "top_ids" in value:
        ids, logprobs = value["top_ids"][:, :top_k], value["top_logprobs"][:, :top_k]
    else:
        ids = np.argsort(-value["mask_logprobs"], axis=1, kind="stable")[:, :top_k]
        logprobs = np.take_along_axis(value["mask_logprobs"], ids, axis=1)
    return [
        [((token_id,), logprob) for token_id, logprob in zip(*row, strict=True)]
        for row in zip(ids.tolist(), logprobs.tolist(), strict=True)
    ]
