"""POST /attention: what each position took from each, layer by layer, head by head."""

import asyncio
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from service.endpoints.schemas import Body, Service, Texts, Token, Truncate, tokens_of
from service.errors import COMMON, AnswerTooLarge, InvalidField, TooMuchWork, documented
from service.inference import Inference
from service.models import Work
from service.windows import Window
from service.wire import JsonRoute, json_answer

# Of JSON, on average; counted before anything is computed.
BYTES_PER_WEIGHT, BYTES_PER_PAIR = 12, 26

router = APIRouter(route_class=JsonRoute, tags=["inference"])


class AttentionBody(Body):
    """Texts to look into."""

    inputs: Texts
    truncate: Truncate = None
    layers: list[int] | None = Field(
        None, min_length=1, description="Layers, from 0; negative ones count from the last."
    )
    heads: list[int] | None = Field(None, min_length=1, description="Heads, likewise.")
    reduce: Literal["none", "mean"] = Field(
        "none", description="`mean` averages the heads: one matrix a layer."
    )
    top_k: Annotated[
        int | None, Field(ge=1, description="Per query only the k largest, as [key, weight] pairs.")
    ] = None


class TextWeights(BaseModel):
    """A text's tokens and weights."""

    kind: Literal["attention", "token_mixing"] = Field(
        description="`attention`: not negative, rows sum to 1. `token_mixing`: the derivative of "
        "the token MLP, signed."
    )
    tokens: list[Token]
    layers: list[int]
    heads: list[int]
    weights: list[Any] = Field(description="[layer][head][query][key]; without heads if reduced.")
    truncated: bool


@router.post(
    "/attention",
    response_model=TextWeights | list[TextWeights],
    responses=documented(*COMMON, AnswerTooLarge, TooMuchWork),
)
async def attention(body: AttentionBody, service: Service) -> Response:
    """Show the mixing weights of a text, or of each text of a list."""
    request = service.on(body.model, task="attention")
    layers = _chosen("layers", body.layers, request.model.n_layers)
    heads = _chosen("heads", body.heads, request.model.n_heads)
    windows = await request.windows(body.inputs, truncate=body.truncate)
    _check_size(body, windows, layers, heads, request)
    wanted = frozenset({"mixing_weights"})
    jobs = request.jobs(
        windows, lambda w: Work(w.ids, wanted, layers=tuple(layers), heads=tuple(heads))
    )
    answers = await request.answers(jobs, graph="attention")

    def answer() -> Response:
        texts = [
            _text(answer.window, answer.value["mixing_weights"], layers, heads, body, request)
            for answer in answers
        ]
        return json_answer(texts[0] if isinstance(body.inputs, str) else texts, request.done)

    return await asyncio.to_thread(answer)  # megabytes of JSON take longer than the loop may stop


def _chosen(field: str, wanted: list[int] | None, n: int) -> list[int]:
    """Indices from 0, negative ones resolved."""
    if wanted is None:
        return list(range(n))
    for index in wanted:
        if not -n <= index < n:
            raise InvalidField(f"{field} has {index}; this model has 0 to {n - 1}.")
    return [index % n for index in wanted]


def _check_size(
    body: AttentionBody,
    windows: list[Window],
    layers: list[int],
    heads: list[int],
    request: Inference,
) -> None:
    """Refuse an answer that would be too large, before anything is computed."""
    n_matrices = len(layers) * (1 if body.reduce == "mean" else len(heads))
    n_bytes = 0
    for n_tokens in (len(window.ids) for window in windows):
        row = BYTES_PER_WEIGHT * n_tokens
        if body.top_k is not None:
            row = BYTES_PER_PAIR * min(body.top_k, n_tokens)
        n_bytes += n_matrices * n_tokens * row
    limit = request.settings.max_answer_bytes
    if n_bytes > limit:
        raise AnswerTooLarge(n_bytes=n_bytes, limit=limit)


def _text(
    window: Window,
    weights: NDArray[Any],
    layers: list[int],
    heads: list[int],
    body: AttentionBody,
    request: Inference,
) -> dict[str, Any]:
    if body.reduce == "mean":
        weights = weights.mean(axis=1)
    return {
        "kind": request.model.kind,
        "tokens": tokens_of(window, request.model.tokenizer),
        "layers": layers,
        "heads": heads,
        "weights": weights if body.top_k is None else _top(weights, body.top_k),
        "truncated": window.truncated,
    }


def _top(weights: NDArray[Any], k: int) -> list[Any]:
    """The k largest magnitudes of each query as [key, weight] pairs, largest first."""
    order = np.argsort(-np.abs(weights), axis=-1, kind="stable")[..., :k]
    values = np.take_along_axis(weights, order, axis=-1)
    flat_order = order.reshape(-1, order.shape[-1]).tolist()
    flat_values = values.reshape(-1, values.shape[-1]).tolist()
    pairs = [
        [list(pair) for pair in zip(keys, row, strict=True)]
        for keys, row in zip(flat_order, flat_values, strict=True)
    ]
    return _folded(pairs, weights.shape[:-1])


def _folded(rows: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """A flat list nested to `shape`."""
    for size in reversed(shape[1:]):
        rows = [rows[i : i + size] for i in range(0, len(rows), size)]
    return rows
