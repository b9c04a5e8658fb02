"""Vectors of texts: pooled by name, cut to leading features, scaled to length 1."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import AnswerTooLarge, InvalidField, NonFinite, NotOffered
from service.inference import Inference, Inputs
from service.models import Model, Work
from service.windows import Window, keep_left, keep_right

BYTES_PER_NUMBER = {"float": 12, "base64": 6, "binary": 4}  # of an answer

Vectors = list[tuple[Window, NDArray[Any]]]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How texts are to be embedded.

    Attributes:
        pooling: How tokens become one vector; the model's first if None.
        dimensions: Leading features that are kept; all if None.
        left: Whether a text that is too long loses its beginning.
        prompt_name: Of a text that is put before each.
    """

    pooling: str | None = None
    normalize: bool = True
    dimensions: int | None = None
    truncate: bool | None = None
    left: bool = False
    prompt_name: str | None = None


def check(wanted: Wanted, model: Model) -> None:
    """Refuse what a model does not have.

    Raises:
        NotOffered: The pooling or the prompt.
        InvalidField: More dimensions than its vectors have.
    """
    if wanted.pooling is not None and wanted.pooling not in model.poolings:
        raise NotOffered(f"This model has no such pooling; there are: {', '.join(model.poolings)}.")
    if wanted.prompt_name is not None and wanted.prompt_name not in model.prompts:
        there = f"there are: {', '.join(model.prompts)}" if model.prompts else "it has none"
        raise NotOffered(f"This model has no such prompt; {there}.")
    if wanted.dimensions is not None and wanted.dimensions > model.d_model:
        raise InvalidField(
            f"dimensions is {wanted.dimensions}; this model's vectors have {model.d_model}."
        )


def prompted(inputs: Inputs, wanted: Wanted, model: Model) -> Inputs:
    """The texts with the prompt before each.

    Raises:
        InvalidField: They are token ids, which have no text.
    """
    if wanted.prompt_name is None:
        return inputs
    prompt = model.prompts[wanted.prompt_name]
    if isinstance(inputs, str):
        return prompt + inputs
    if any(not isinstance(text, str) for text in inputs):
        raise InvalidField("prompt_name stands before texts; token ids are read as they are.")
    return [f"{prompt}{text}" for text in inputs]


async def embed(
    request: Inference, inputs: Inputs, wanted: Wanted, *, form: str = "float"
) -> Vectors:
    """The vector of each text, in order.

    Raises:
        AnswerTooLarge: The answer in this form would have too many bytes.
        NonFinite: A text has no finite vector, or none of a direction.
    """
    model = request.model
    check(wanted, model)
    windows = await request.windows(
        prompted(inputs, wanted, model),
        truncate=wanted.truncate,
        keep=keep_right if wanted.left else keep_left,
    )
    check_size(len(windows) * (wanted.dimensions or model.d_model), form, request)
    output = frozenset({f"pooled_{wanted.pooling or model.poolings[0]}"})
    jobs = request.jobs(windows, lambda window: Work(window.ids, output))
    vectors = []
    for answer in await request.answers(jobs):
        (vector,) = answer.value.values()
        kept = vector[: wanted.dimensions]
        if wanted.normalize:
            wide = kept.astype(np.float64)  # no overflow in the squares
            length = math.sqrt(wide @ wide)
            if not length:
                request.set_aside(answer.window.index, NonFinite(index=answer.window.index))
                continue
            kept = (kept / length).astype(np.float32)
        vectors.append((answer.window, kept))
    return vectors


def check_size(n_numbers: int, form: str, request: Inference) -> None:
    """Refuse an answer of too many numbers.

    Raises:
        AnswerTooLarge: With its size.
    """
    n_bytes, limit = n_numbers * BYTES_PER_NUMBER[form], request.settings.max_answer_bytes
    if n_bytes > limit:
        raise AnswerTooLarge(n_bytes=n_bytes, limit=limit)
