"""POST /attention: what each position took from each, layer by layer, head by head."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import Field

from service.endpoints.schemas import (
    Accept,
    Body,
    Cut,
    ItemError,
    Partial,
    Service,
    Texts,
    Token,
    Truncate,
    tokens_of,
)
from service.errors import (
    COMMON,
    AnswerTooLarge,
    InvalidField,
    NotOffered,
    TooMuchWork,
    documented,
)
from service.inference import Inference, by_window
from service.mixing import Mixing, Reduce, pairs, shown
from service.models import Model, Work
from service.windows import Window
from service.wire import (
    OR_SAFETENSORS,
    JsonRoute,
    json_answer,
    safetensors_answer,
    wants_safetensors,
)

# Of an answer, on average; counted before anything is computed.
BYTES_PER_WEIGHT = {"json": 12, "binary": 4}
BYTES_PER_PAIR = {"json": 26, "binary": 8}
HIDDEN = frozenset({"last_hidden"})

router = APIRouter(route_class=JsonRoute, tags=["inference"])

Results = list[tuple[Window, dict[str, NDArray[Any]]]]


class AttentionBody(Body):
    """Texts to look into."""

    inputs: Texts
    truncate: Truncate = None
    kind: Literal["attention", "token_mixing", "influence"] | None = Field(
        None,
        description="The model's own mixing weights if left out; `influence` of any model: how far "
        "masking each position moves each output.",
    )
    layers: list[int] | None = Field(
        None, min_length=1, description="Layers, from 0; negative ones count from the last."
    )
    heads: list[int] | None = Field(None, min_length=1, description="Heads, likewise.")
    reduce: Reduce = Field(
        "none",
        description="`mean` averages the heads: one matrix a layer. `rollout` multiplies the "
        "layers too, each half its residual connection: one matrix.",
    )
    top_k: Annotated[
        int | None, Field(ge=1, description="Per query only the k largest, as [key, weight] pairs.")
    ] = None
    special_tokens: Annotated[
        bool, Field(description="False leaves the model's prefix and suffix out.")
    ] = True
    partial: Partial = False


class TextWeights(Cut):
    """A text's tokens and weights."""

    kind: Literal["attention", "token_mixing", "influence"] = Field(
        description="`attention`: not negative, rows sum to 1. `token_mixing`: the derivative of "
        "the token MLP, signed. `influence`: not negative, relative to the output's length."
    )
    tokens: list[Token]
    layers: list[int] = Field(description="Those that were read; none of an influence.")
    heads: list[int] = Field(description="Likewise.")
    weights: list[Any] = Field(
        description="[layer][head][query][key]; without heads by `mean`, and without layers by "
        "`rollout` and of an influence."
    )


@router.post(
    "/attention",
    response_model=TextWeights | list[TextWeights | ItemError],
    responses=OR_SAFETENSORS | documented(*COMMON, AnswerTooLarge, NotOffered, TooMuchWork),
)
async def attention(body: AttentionBody, service: Service, accept: Accept = "") -> Response:
    """Show the mixing weights of a text, or of each text of a list."""
    request = service.on(body.model, task="attention", partial=body.partial)
    mixing = _mixing(body, request.model)
    windows = await request.windows(body.inputs, truncate=body.truncate)
    binary = wants_safetensors(accept)
    _check_size(windows, mixing, request, form="binary" if binary else "json")
    if body.kind == "influence":
        results = await _influences(windows, mixing, request)
    else:
        wanted = frozenset({"mixing_weights"})
        jobs = request.jobs(windows, lambda w: Work(w.ids, wanted, mixing=mixing))
        answers = await request.answers(jobs, graph="attention")
        results = [(answer.window, answer.value) for answer in answers]

    def answer() -> Response:
        kind = body.kind or request.model.kind
        if binary:
            facts = request.beside_failures(
                [(w, _facts(w, mixing, kind, request)) for w, _ in results]
            )
            tensors = {
                f"{name}.{index if w.index is None else w.index}": array
                for index, (w, arrays) in enumerate(results)
                for name, array in arrays.items()
            }
            return safetensors_answer(tensors, facts, request.done)
        texts = request.beside_failures(
            [(w, _facts(w, mixing, kind, request) | _weights(arrays)) for w, arrays in results]
        )
        return json_answer(texts[0] if isinstance(body.inputs, str) else texts, request.done)

    return await asyncio.to_thread(answer)  # megabytes of JSON take longer than the loop may stop


def _mixing(body: AttentionBody, model: Model) -> Mixing:
    """What is wanted of each text.

    Raises:
        NotOffered, InvalidField: The model does not have it.
    """
    tokenizer = model.tokenizer
    left_out = (0, 0) if body.special_tokens else (len(tokenizer.prefix), len(tokenizer.suffix))
    if body.kind == "influence":
        if body.layers or body.heads or body.reduce != "none":
            raise InvalidField(
                "An influence is of the whole model; leave out layers, heads and reduce."
            )
        return Mixing(layers=(), heads=(), reduce="rollout", top_k=body.top_k, left_out=left_out)
    if body.kind not in (None, model.kind):
        raise NotOffered(
            f"This model has no weights of kind {body.kind}; there are: {model.kind}, influence."
        )
    if body.reduce == "rollout" and model.kind != "attention":
        raise InvalidField(
            "reduce is rollout, which multiplies rows that sum to 1; the weights of this model are "
            "signed and do not. kind: influence shows what passes through all layers."
        )
    return Mixing(
        layers=_chosen("layers", body.layers, model.n_layers),
        heads=_chosen("heads", body.heads, model.n_heads),
        reduce=body.reduce,
        top_k=body.top_k,
        left_out=left_out,
    )


def _chosen(field: str, wanted: list[int] | None, n: int) -> tuple[int, ...]:
    """Indices from 0, negative ones resolved."""
    if wanted is None:
        return tuple(range(n))
    for index in wanted:
        if not -n <= index < n:
            raise InvalidField(f"{field} has {index}; this model has 0 to {n - 1}.")
    return tuple(index % n for index in wanted)


def _check_size(
    windows: Sequence[Window], mixing: Mixing, request: Inference, *, form: str
) -> None:
    """Refuse an answer that would be too large, before anything is computed."""
    n_bytes = 0
    for window in windows:
        n_tokens = len(window.ids) - sum(mixing.left_out)
        row = BYTES_PER_WEIGHT[form] * n_tokens
        if mixing.top_k is not None:
            row = BYTES_PER_PAIR[form] * min(mixing.top_k, n_tokens)
        n_bytes += mixing.n_matrices * n_tokens * row
    limit = request.settings.max_answer_bytes
    if n_bytes > limit:
        raise AnswerTooLarge(n_bytes=n_bytes, limit=limit)


async def _influences(windows: Sequence[Window], mixing: Mixing, request: Inference) -> Results:
    """How far masking each position moves each output, relative to the output's length.

    [T,T] by the position that moved and the one that was masked; a pass for each, and one.
    """
    request.check_passes(sum(1 + len(window.ids) for window in windows))
    plain = await request.answers(request.jobs(windows, lambda w: Work(w.ids, HIDDEN)))
    hidden = {answer.window: answer.value["last_hidden"] for answer in plain}
    mask_id = request.model.tokenizer.mask_id

    def masked(window: Window) -> list[Work]:
        ids = window.ids
        return [
            Work([*ids[:at], mask_id, *ids[at + 1 :]], HIDDEN, reference=hidden[window])
            for at in range(len(ids))
        ]

    answers = by_window(await request.answers(request.jobs(hidden, masked)))
    return [
        (
            window,
            shown(
                np.stack([a.value["shift"] for a in moved], axis=1), mixing.left_out, mixing.top_k
            ),
        )
        for window, moved in answers.items()
    ]


def _facts(window: Window, mixing: Mixing, kind: str, request: Inference) -> dict[str, Any]:
    tokens = tokens_of(window, request.model.tokenizer)
    before, after = mixing.left_out
    return window.facts() | {
        "kind": kind,
        "tokens": tokens[before : len(tokens) - after],
        "layers": mixing.layers,
        "heads": mixing.heads,
    }


def _weights(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    if "keys" in arrays:
        return {"weights": pairs(arrays["keys"], arrays["weights"])}
    return {"weights": arrays["weights"]}
