"""POST /fill-mask: the likeliest tokens in place of each [MASK]."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from model.tokenizer import Tokenizer
from service.endpoints.schemas import (
    Body,
    Cut,
    ItemError,
    Partial,
    Service,
    Texts,
    Timings,
    Truncate,
)
from service.errors import (
    COMMON,
    AnswerTooLarge,
    InvalidField,
    MasksTooFarApart,
    NoMask,
    TooMuchWork,
    documented,
)
from service.filling import Ids, Ranked, Targets, jointly, likeliest, of_targets, read_targets
from service.inference import Inference
from service.off_loop import off_the_loop
from service.windows import Window, keep_around
from service.wire import BYTES_ON_THE_LOOP, JsonRoute, json_answer

BYTES_PER_CANDIDATE = 80  # of JSON, beside the text

router = APIRouter(route_class=JsonRoute, tags=["inference"])


class Parameters(BaseModel):
    """Which candidates are wanted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    top_k: Annotated[int | None, Field(ge=1, description="Candidates per mask; 5 if left out.")] = (
        None
    )
    targets: Annotated[
        list[str] | None,
        Field(
            min_length=1,
            max_length=1024,
            description="Score only these; one of several tokens is scored jointly.",
        ),
    ] = None
    joint: Annotated[
        bool,
        Field(description="Fill all masks of a text together, left to right: a beam of top_k."),
    ] = False


class FillMaskBody(Body):
    """Texts with [MASK] where a token is wanted."""

    inputs: Annotated[Texts, Field(examples=["To be, or not to be, that is the ques[MASK]ion:"])]
    parameters: Annotated[Parameters | None, Field(description="Which candidates.")] = None
    details: bool = Field(False, description="Answer in one shape, with spans and truncation.")
    partial: Partial = False
    truncate: Truncate = None


class Candidate(BaseModel):
    """What may stand at a mask."""

    score: float = Field(description="Probability over the whole vocabulary.")
    token: int | None = Field(description="Its token; null for a target of several.")
    token_str: str
    sequence: str = Field(description="The text with the candidate in place of the mask.")
    tokens: list[int] | None = Field(None, description="Of a target of several tokens, all.")
    partial_character: bool = Field(
        False, description="There, and true, where the token is only some bytes of a character."
    )


class JointFill(BaseModel):
    """Tokens for all masks of a text together."""

    score: float = Field(description="Joint probability.")
    logprob: float = Field(description="Its natural logarithm: a sum over the masks.")
    tokens: list[int]
    token_strs: list[str]
    sequence: str


class MaskDetails(BaseModel):
    """A mask and its candidates."""

    span: tuple[int, int] = Field(description="Start and end of the mask, in code points.")
    candidates: list[Candidate]


class TextDetails(Cut):
    """A text and its masks."""

    masks: list[MaskDetails]
    joint: list[JointFill] | None = Field(None, description="With `joint`, the fills.")


class TargetDetails(BaseModel):
    """What became of the targets, by their places in the request."""

    duplicates: list[int]
    unknown: list[int] = Field(description="Left out; without `partial` they are refused.")


class Details(BaseModel):
    """The answer when `details` or `partial` is true."""

    model: str
    results: list[TextDetails | ItemError]
    targets: TargetDetails | None = None
    timings: Timings


Flat = list[Candidate] | list[list[Candidate]] | list[JointFill]


@router.post(
    "/fill-mask",
    response_model=Flat | list[Flat] | Details,
    responses=documented(*COMMON, NoMask, MasksTooFarApart, AnswerTooLarge, TooMuchWork),
)
async def fill_mask(body: FillMaskBody, service: Service) -> Response:
    """Fill in each `[MASK]`.

    A text with one mask is answered by a list of candidates, one with several by a list per mask,
    and a list of texts by a list per text. `details` gives one stable shape for all.
    """
    request = service.on(body.model, task="fill-mask", partial=body.partial)
    tokenizer, parameters = request.model.tokenizer, body.parameters or Parameters()
    targets = _targets(parameters, tokenizer, partial=body.partial)
    top_k = top_k_of(parameters.top_k, targets, tokenizer.vocab_size)
    windows = await request.windows(
        body.inputs,
        truncate=body.truncate,
        keep=keep_around(tokenizer.mask_id),
        max_tokens=_room(request, targets),
    )
    n_bytes = _size(windows, top_k, parameters, request)
    joint = await jointly(request, windows, top_k=top_k) if parameters.joint else {}
    if parameters.joint:
        masks: dict[Window, list[Ranked]] = {
            window: [[] for _ in request.mask_columns(window)] for window in joint
        }
    elif targets:
        masks = await of_targets(request, windows, targets, top_k=top_k)
    else:
        masks = await likeliest(request, windows, top_k=top_k)

    def answer() -> Response:
        if body.details or body.partial:
            results = [(w, _text(w, masks[w], joint.get(w), request)) for w in masks]
            details = _details(results, targets, request)
            return json_answer(details, request.done)
        flat = [_flat(w, masks[w], joint.get(w), request) for w in masks]
        return json_answer(flat[0] if isinstance(body.inputs, str) else flat, request.done)

    return await off_the_loop(answer, large=n_bytes >= BYTES_ON_THE_LOOP)


def _targets(parameters: Parameters, tokenizer: Tokenizer, *, partial: bool) -> Targets | None:
    if parameters.targets is None:
        return None
    if parameters.joint:
        raise InvalidField("parameters.joint fills from the whole vocabulary; leave out targets.")
    return read_targets(parameters.targets, tokenizer, partial=partial)


def top_k_of(top_k: int | None, targets: Targets | None, vocab_size: int) -> int:
    """How many candidates a mask gets.

    Raises:
        InvalidField: More are asked for than there are tokens.
    """
    if top_k is not None and top_k > vocab_size:
        raise InvalidField(f"parameters.top_k is {top_k}; the vocabulary has {vocab_size} tokens.")
    if targets is not None:
        return min(top_k or len(targets.ids), len(targets.ids))
    return min(5, vocab_size) if top_k is None else top_k


def _room(request: Inference, targets: Targets | None) -> int:
    """Longest window that leaves room for the longest target in place of one mask.

    Raises:
        InvalidField: There is none.
    """
    model = request.model
    room = model.max_tokens - (targets.longest - 1 if targets else 0)
    if room <= model.tokenizer.n_wrap:
        raise InvalidField(
            f"parameters.targets has one of {model.max_tokens - room + 1} tokens; this model takes "
            f"at most {model.max_tokens - model.tokenizer.n_wrap}."
        )
    return room


def _size(windows: Sequence[Window], top_k: int, parameters: Parameters, request: Inference) -> int:
    """Bytes of an answer, about: each candidate repeats its text.

    Raises:
        AnswerTooLarge: Before anything is computed.
    """
    mask_id, n_bytes = request.model.tokenizer.mask_id, 0
    for window in windows:
        n_masks = len(window.columns_of(mask_id))
        n_lists = min(1, n_masks) if parameters.joint else n_masks
        n_bytes += n_lists * top_k * (len(window.text) + BYTES_PER_CANDIDATE)
        n_bytes += n_masks * top_k * 16 if parameters.joint else 0
    limit = request.settings.max_answer_bytes
    if n_bytes > limit:
        raise AnswerTooLarge(n_bytes=n_bytes, limit=limit)
    return n_bytes


def _candidate(
    text: str, span: tuple[int, int], ids: Ids, logprob: float, tokenizer: Tokenizer
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "score": math.exp(logprob),
        "token": ids[0] if len(ids) == 1 else None,
        "token_str": tokenizer.decode(ids),
        "sequence": tokenizer.splice(text, span, ids),
    }
    if len(ids) > 1:
        fields["tokens"] = ids
    elif tokenizer.is_partial(ids[0]):
        fields["partial_character"] = True
    return fields


def _candidates(
    window: Window, masks: list[Ranked], request: Inference
) -> list[list[dict[str, Any]]]:
    text, tokenizer = window.text, request.model.tokenizer
    spans = map(window.find_mask, request.mask_columns(window))
    return [
        [_candidate(text, span, ids, logprob, tokenizer) for ids, logprob in ranked]
        for span, ranked in zip(spans, masks, strict=True)
    ]


def _fills(window: Window, joint: Ranked, request: Inference) -> list[dict[str, Any]]:
    tokenizer, columns = request.model.tokenizer, request.mask_columns(window)
    fills = []
    for ids, logprob in joint:
        sequence = window.text
        for column, token_id in reversed(list(zip(columns, ids, strict=True))):
            sequence = tokenizer.splice(sequence, window.find_mask(column), [token_id])
        fills.append(
            {
                "score": math.exp(logprob),
                "logprob": logprob,
                "tokens": ids,
                "token_strs": [tokenizer.token_str(token_id) for token_id in ids],
                "sequence": sequence,
            }
        )
    return fills


def _flat(
    window: Window, masks: list[Ranked], joint: Ranked | None, request: Inference
) -> list[Any]:
    if joint is not None:
        return _fills(window, joint, request)
    lists = _candidates(window, masks, request)
    return lists[0] if len(lists) == 1 else lists


def _text(
    window: Window, masks: list[Ranked], joint: Ranked | None, request: Inference
) -> dict[str, Any]:
    spans = [window.find_mask(column) for column in request.mask_columns(window)]
    candidates = _candidates(window, masks, request)
    details = window.facts() | {
        "masks": [
            {"span": span, "candidates": of_mask}
            for span, of_mask in zip(spans, candidates, strict=True)
        ]
    }
    return details if joint is None else details | {"joint": _fills(window, joint, request)}


def _details(
    results: Sequence[tuple[Window, Any]], targets: Targets | None, request: Inference
) -> Mapping[str, Any]:
    details: dict[str, Any] = {
        "model": request.model.name,
        "results": request.beside_failures(results),
        "timings": request.timings(),
    }
    if targets is not None:
        details["targets"] = {"duplicates": targets.duplicates, "unknown": targets.unknown}
    return details
