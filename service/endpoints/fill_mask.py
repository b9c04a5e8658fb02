"""POST /fill-mask: the likeliest tokens in place of each [MASK]."""

import asyncio
import math
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from model.tokenizer import Tokenizer
from service.endpoints.schemas import Body, Service, Texts, Truncate
from service.errors import (
    COMMON,
    AnswerTooLarge,
    InvalidField,
    MasksTooFarApart,
    NoMask,
    documented,
)
from service.inference import Answer, Inference, Job
from service.models import Work
from service.windows import Window, keep_around
from service.wire import JsonRoute, json_answer

N_TOP = 64  # candidates that the graph picks itself
BYTES_PER_CANDIDATE = 80  # of JSON, beside the text
BYTES_ON_THE_LOOP = 65536  # written in about a millisecond

router = APIRouter(route_class=JsonRoute, tags=["inference"])


class Parameters(BaseModel):
    """Which candidates are wanted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    top_k: Annotated[int, Field(ge=1, description="Candidates per mask.")] = 5
    targets: Annotated[
        list[str] | None,
        Field(min_length=1, max_length=1024, description="Score only these tokens."),
    ] = None


class FillMaskBody(Body):
    """Texts with [MASK] where a token is wanted."""

    inputs: Annotated[Texts, Field(examples=["To be, or not to be, that is the ques[MASK]ion:"])]
    parameters: Parameters = Field(default_factory=Parameters)
    details: bool = Field(False, description="Answer in one shape, with spans and truncation.")
    truncate: Truncate = None


class Candidate(BaseModel):
    """A token that may stand at a mask."""

    score: float = Field(description="Probability over the whole vocabulary.")
    token: int
    token_str: str
    sequence: str = Field(description="The text with the token in place of the mask.")


class MaskDetails(BaseModel):
    """A mask and its candidates."""

    span: tuple[int, int] = Field(description="Start and end of the mask, in code points.")
    candidates: list[Candidate]


class TextDetails(BaseModel):
    """A text and its masks."""

    masks: list[MaskDetails]
    n_tokens: int = Field(description="Tokens of the text.")
    kept: tuple[int, int] = Field(description="The tokens that the model read: start and end.")
    truncated: bool


class Details(BaseModel):
    """The answer when `details` is true."""

    model: str
    results: list[TextDetails]


Flat = list[Candidate] | list[list[Candidate]]


@router.post(
    "/fill-mask",
    response_model=Flat | list[Flat] | Details,
    responses=documented(*COMMON, NoMask, MasksTooFarApart, AnswerTooLarge),
)
async def fill_mask(body: FillMaskBody, service: Service) -> Response:
    """Fill in each `[MASK]`.

    A text with one mask is answered by a list of candidates, one with several by a list per mask,
    and a list of texts by a list per text. `details` gives one stable shape for all.
    """
    request = service.on(body.model, task="fill-mask")
    tokenizer = request.model.tokenizer
    targets = _target_ids(body.parameters.targets, tokenizer)
    top_k = _top_k(body.parameters.top_k, targets, tokenizer.vocab_size)
    windows = await request.windows(
        body.inputs, truncate=body.truncate, keep=keep_around(tokenizer.mask_id)
    )
    whole = targets is not None or top_k > N_TOP
    outputs = frozenset({"mask_logprobs"} if whole else {"top_logprobs", "top_ids"})
    jobs = request.jobs(windows, lambda w: Work(w.ids, outputs, request.mask_columns(w)))
    n_bytes = _check_size(jobs, top_k, request)
    answers = await request.answers(jobs)

    def answer() -> Response:
        results = [
            _masks(answer, *_best(answer.value, top_k, targets), tokenizer) for answer in answers
        ]
        if body.details:
            return json_answer(_details(windows, results, request), request.done)
        flat = [_flat(masks) for masks in results]
        return json_answer(flat[0] if isinstance(body.inputs, str) else flat, request.done)

    # A large answer takes longer to write than the event loop may stop.
    return answer() if n_bytes < BYTES_ON_THE_LOOP else await asyncio.to_thread(answer)


def _check_size(jobs: list[Job], top_k: int, request: Inference) -> int:
    """Bytes of the answer, about: each candidate repeats its text.

    Raises:
        AnswerTooLarge: Before anything is computed.
    """
    n_bytes = sum(
        len(job.work.mask_columns) * top_k * (len(job.window.text) + BYTES_PER_CANDIDATE)
        for job in jobs
    )
    limit = request.settings.max_answer_bytes
    if n_bytes > limit:
        raise AnswerTooLarge(n_bytes=n_bytes, limit=limit)
    return n_bytes


def _target_ids(targets: list[str] | None, tokenizer: Tokenizer) -> NDArray[np.int64] | None:
    """The ids of the targets, each once.

    Raises:
        InvalidField: One is no single token: a piece of it would be another answer.
    """
    if targets is None:
        return None
    ids = []
    for index, target in enumerate(targets):
        token_id = tokenizer.single_id(target)
        if token_id is None:
            raise InvalidField(
                f"parameters.targets[{index}] is not one token of the vocabulary; "
                "only single tokens are scored."
            )
        ids.append(token_id)
    return np.array(list(dict.fromkeys(ids)), np.int64)


def _top_k(top_k: int, targets: NDArray[np.int64] | None, vocab_size: int) -> int:
    if top_k > vocab_size:
        raise InvalidField(f"parameters.top_k is {top_k}; the vocabulary has {vocab_size} tokens.")
    return top_k if targets is None else min(top_k, len(targets))


def _best(
    value: dict[str, NDArray[Any]], top_k: int, targets: NDArray[np.int64] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(ids, log-probabilities) of the candidates of each mask, likeliest first."""
    if "mask_logprobs" not in value:
        return value["top_ids"][:, :top_k], value["top_logprobs"][:, :top_k]
    logprobs = value["mask_logprobs"]
    if targets is not None:
        logprobs = logprobs[:, targets]
    order = np.argsort(-logprobs, axis=1, kind="stable")[:, :top_k]
    ids = order if targets is None else targets[order]
    return ids, np.take_along_axis(logprobs, order, axis=1)


def _masks(
    answer: Answer, ids: NDArray[Any], logprobs: NDArray[Any], tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """Each mask of a text with its candidates."""
    window, masks = answer.window, []
    for mask, column in enumerate(answer.work.mask_columns):
        span = window.spans[column]
        candidates = [
            {
                "score": math.exp(logprob),
                "token": token,
                "token_str": tokenizer.token_str(token),
                "sequence": tokenizer.splice(window.text, span, token),
            }
            for token, logprob in zip(ids[mask].tolist(), logprobs[mask].tolist(), strict=True)
        ]
        masks.append({"span": span, "candidates": candidates})
    return masks


def _flat(masks: list[dict[str, Any]]) -> list[Any]:
    lists = [mask["candidates"] for mask in masks]
    return lists[0] if len(lists) == 1 else lists


def _details(
    windows: list[Window], results: list[list[dict[str, Any]]], request: Inference
) -> dict[str, Any]:
    texts = [
        {
            "masks": masks,
            "n_tokens": window.n_tokens,
            "kept": (window.start, window.stop),
            "truncated": window.truncated,
        }
        for window, masks in zip(windows, results, strict=True)
    ]
    return {"model": request.model.name, "results": texts}
