"""POST /compare: one text, two models, and how far their answers are apart."""

import asyncio
import math
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from export.artefact import TOKENIZER
from service.endpoints.schemas import Cut, Service, Truncate
from service.errors import (
    COMMON,
    MasksTooFarApart,
    NoMask,
    NotOffered,
    TokenizersDiffer,
    documented,
)
from service.inference import Answer, Inference
from service.models import Work
from service.windows import Window, keep_around
from service.wire import JsonRoute, json_answer

N_CANDIDATES = 5

router = APIRouter(route_class=JsonRoute, tags=["inference"])


class CompareBody(BaseModel):
    """A text with masks, and two models."""

    model_config = ConfigDict(extra="forbid", strict=True)

    inputs: Annotated[str, Field(examples=["to b[MASK]"])]
    models: Annotated[
        list[str] | None,
        Field(min_length=2, max_length=2, description="Two names; the first two if left out."),
    ] = None
    truncate: Truncate = None


class ComparedCandidate(BaseModel):
    """A token and its probability."""

    token: int
    token_str: str
    score: float


class ComparedMask(BaseModel):
    """A mask as both models fill it."""

    span: tuple[int, int] = Field(description="Start and end of the mask, in code points.")
    candidates: tuple[list[ComparedCandidate], list[ComparedCandidate]]
    agree: bool = Field(description="Whether both put the same token first.")
    kl: tuple[float, float] = Field(
        description="Kullback-Leibler divergence over the vocabulary, in nats: of the second from "
        "the first model, Σ p·ln(p/q), and the other way round."
    )
    cosine: float = Field(description="Between the two vectors of probabilities.")


class ModelTimes(BaseModel):
    """How long a model took."""

    queue_seconds: float
    run_seconds: float


class Comparison(Cut):
    """Two models' answers to one text; the figures are means over its masks."""

    models: tuple[str, str]
    masks: list[ComparedMask]
    agreement: float
    kl: tuple[float, float]
    cosine: float
    latency: tuple[ModelTimes, ModelTimes]


@router.post(
    "/compare",
    response_model=Comparison,
    responses=documented(*COMMON, NoMask, MasksTooFarApart, NotOffered, TokenizersDiffer),
)
async def compare(body: CompareBody, service: Service) -> Response:
    """Let two models with one vocabulary fill the masks of a text.

    Both read the same window, of the shorter model's length.
    """
    names = body.models or service.registry.names[:2]
    if len(names) < 2:
        raise NotOffered("Only one model is served here; a comparison takes two.")
    requests = [service.on(name, task="compare") for name in names]
    first, second = (request.model for request in requests)
    if first.artefact.files[TOKENIZER] != second.artefact.files[TOKENIZER]:
        raise TokenizersDiffer
    room = min(first.max_tokens, second.max_tokens)
    answers = await asyncio.gather(*(_answer(request, body, room) for request in requests))
    for request in requests[1:]:
        request.done()

    def answer() -> Response:
        return json_answer(_comparison(requests, answers), requests[0].done)

    return await asyncio.to_thread(answer)  # it sums over the vocabulary at each mask


async def _answer(request: Inference, body: CompareBody, room: int) -> Answer:
    keep = keep_around(request.model.tokenizer.mask_id)
    windows = await request.windows(body.inputs, truncate=body.truncate, keep=keep, max_tokens=room)
    wanted = frozenset({"mask_logprobs"})
    jobs = request.jobs(windows, lambda w: Work(w.ids, wanted, request.mask_columns(w)))
    [answer] = await request.answers(jobs)
    return answer


def _comparison(requests: list[Inference], answers: list[Answer]) -> dict[str, Any]:
    window = answers[0].window
    both = [answer.value["mask_logprobs"].astype(np.float64) for answer in answers]
    masks = [
        _mask(window, column, (first, second), requests[0])
        for column, first, second in zip(answers[0].work.mask_columns, *both, strict=True)
    ]

    def mean(values: list[float]) -> float:
        return math.fsum(values) / len(values)

    times = [request.timings() for request in requests]
    return window.facts() | {
        "models": [request.model.name for request in requests],
        "masks": masks,
        "agreement": mean([mask["agree"] for mask in masks]),
        "kl": [mean([mask["kl"][way] for mask in masks]) for way in (0, 1)],
        "cosine": mean([mask["cosine"] for mask in masks]),
        "latency": [
            {name: seconds[name] for name in ("queue_seconds", "run_seconds")} for seconds in times
        ],
    }


def _mask(
    window: Window, column: int, logprobs: tuple[NDArray[Any], NDArray[Any]], request: Inference
) -> dict[str, Any]:
    tokenizer = request.model.tokenizer
    p, q = (np.exp(of_model) for of_model in logprobs)
    apart = logprobs[0] - logprobs[1]
    orders = [np.argsort(-of_model, kind="stable")[:N_CANDIDATES].tolist() for of_model in logprobs]
    return {
        "span": window.find_mask(column),
        "candidates": [
            [
                {"token": i, "token_str": tokenizer.token_str(i), "score": float(scores[i])}
                for i in order
            ]
            for order, scores in zip(orders, (p, q), strict=True)
        ],
        "agree": orders[0][0] == orders[1][0],
        # Rounding can leave a divergence just below 0.
        "kl": [max(0.0, float(p @ apart)), max(0.0, float(q @ -apart))],
        "cosine": float(p @ q / (np.linalg.norm(p) * np.linalg.norm(q))),
    }
