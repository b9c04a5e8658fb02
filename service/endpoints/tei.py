"""What clients of text-embeddings-inference call beside /embed, /similarity and /info.

Source: its router, version 1.9. Where a status differs from its, docs/api.md says so.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, BeforeValidator, Field

from service.embedding import Wanted, check, check_size, prompted
from service.endpoints.embed import Direction, PromptName
from service.endpoints.health import lifecycle_of
from service.endpoints.schemas import Accept, Body, Service, Texts, TextsOrIds, Truncate, token_ids
from service.errors import (
    COMMON,
    OPEN,
    WITH_BODY,
    AnswerTooLarge,
    Draining,
    EmptyText,
    NotOffered,
    NotReady,
    TooManyTexts,
    UnknownModel,
    documented,
)
from service.lifecycle import Lifecycle
from service.models import Model, Work
from service.windows import checked_ids, keep_left, keep_right
from service.wire import (
    OR_SAFETENSORS,
    JsonRoute,
    json_answer,
    safetensors_answer,
    wants_safetensors,
)

BYTES_PER_TOKEN = 70  # of JSON, in an answer of /tokenize

router = APIRouter(route_class=JsonRoute, tags=["inference"])
state = APIRouter(tags=["state"])

WITHOUT_THE_MODEL = (*WITH_BODY, UnknownModel, TooManyTexts)


class EmbedAllBody(Body):
    """Texts whose tokens are to be embedded."""

    inputs: TextsOrIds
    truncate: Truncate = None
    truncation_direction: Direction = "right"
    prompt_name: PromptName = None


@router.post(
    "/embed_all",
    response_model=list[list[list[float]]],
    responses=OR_SAFETENSORS | documented(*COMMON, NotOffered, AnswerTooLarge),
)
async def embed_all(body: EmbedAllBody, service: Service, accept: Accept = "") -> Response:
    """Give the last hidden state of each token of each text, prefix and suffix included."""
    request = service.on(body.model, task="embed")
    wanted = Wanted(prompt_name=body.prompt_name)
    check(wanted, request.model)
    left = body.truncation_direction.lower() == "left"
    windows = await request.windows(
        prompted(body.inputs, wanted, request.model),
        truncate=body.truncate,
        keep=keep_right if left else keep_left,
    )
    binary = wants_safetensors(accept)
    n_numbers = sum(len(window.ids) for window in windows) * request.model.d_model
    check_size(n_numbers, "binary" if binary else "float", request)
    jobs = request.jobs(windows, lambda window: Work(window.ids, frozenset({"last_hidden"})))
    hidden = [answer.value["last_hidden"] for answer in await request.answers(jobs)]

    def answer() -> Response:
        if binary:
            facts = {"model": request.model.name, "results": [w.facts() for w in windows]}
            tensors = {f"embeddings.{index}": array for index, array in enumerate(hidden)}
            return safetensors_answer(tensors, facts, request.done)
        return json_answer(hidden, request.done)

    return await asyncio.to_thread(answer)


class TokenizeBody(Body):
    """Texts to tokenize."""

    inputs: Texts
    add_special_tokens: bool = Field(True, description="With the model's prefix and suffix.")
    prompt_name: PromptName = None


class SimpleToken(BaseModel):
    """A token and where it stands in the text, in code points; prefix and suffix stand nowhere."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


@router.post(
    "/tokenize",
    response_model=list[list[SimpleToken]],
    responses=documented(*WITHOUT_THE_MODEL, EmptyText, AnswerTooLarge, NotOffered),
)
async def tokenize(body: TokenizeBody, service: Service) -> Response:
    """Give the tokens of each text, none cut: a list a text, also for one."""
    model = service.registry.find(body.model)
    wanted = Wanted(prompt_name=body.prompt_name)
    check(wanted, model)
    listed = not isinstance(body.inputs, str)
    texts: Any = body.inputs if listed else [body.inputs]
    given: Any = prompted(texts, wanted, model)
    _check_number(len(given), service)

    def answer() -> Response:
        of_texts, n_bytes = [], 0
        for index, text in enumerate(given):
            tokens = _tokens(text, model, body.add_special_tokens)
            if not tokens:
                raise EmptyText(index=index if listed else None)
            n_bytes += len(tokens) * BYTES_PER_TOKEN
            if n_bytes > service.settings.max_answer_bytes:
                raise AnswerTooLarge(n_bytes=n_bytes, limit=service.settings.max_answer_bytes)
            of_texts.append(tokens)
        return json_answer(of_texts)

    return await asyncio.to_thread(answer)


def _tokens(text: str, model: Model, add_special_tokens: bool) -> list[dict[str, Any]]:
    tokenizer = model.tokenizer
    encoded = tokenizer.encode(text)
    if not encoded.ids:
        return []

    def around(ids: list[int]) -> list[dict[str, Any]]:
        return [
            {"id": i, "text": tokenizer.token_str(i), "special": True, "start": None, "stop": None}
            for i in (ids if add_special_tokens else [])
        ]

    tokens = [
        {
            "id": token_id,
            "text": text[start:stop],
            "special": token_id in tokenizer.special_ids,
            "start": start,
            "stop": stop,
        }
        for token_id, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True)
    ]
    return [*around(tokenizer.prefix), *tokens, *around(tokenizer.suffix)]


class DecodeBody(Body):
    """Token ids to write out."""

    ids: Annotated[
        Annotated[list[int], Field(min_length=1)] | Annotated[list[list[int]], Field(min_length=1)],
        BeforeValidator(token_ids),
        Field(description="The ids of a text, or of several."),
    ]
    skip_special_tokens: bool = Field(True, description="Leave out what is no text; not [MASK].")


@router.post("/decode", response_model=list[str], responses=documented(*WITHOUT_THE_MODEL))
async def decode(body: DecodeBody, service: Service) -> Response:
    """Write out the text of token ids: a list, also for one text."""
    tokenizer = service.registry.find(body.model).tokenizer
    listed = isinstance(body.ids[0], list)
    texts: Any = body.ids if listed else [body.ids]
    _check_number(len(texts), service)

    def answer() -> Response:
        return json_answer(
            [
                tokenizer.decode(
                    checked_ids(ids, index if listed else None, tokenizer),
                    skip_special_tokens=body.skip_special_tokens,
                )
                for index, ids in enumerate(texts)
            ]
        )

    return await asyncio.to_thread(answer)


def _check_number(n_texts: int, service: Service) -> None:
    if n_texts > service.settings.max_texts:
        raise TooManyTexts(n_texts=n_texts, limit=service.settings.max_texts)


@state.get("/health", response_class=Response, responses=documented(*OPEN, NotReady, Draining))
async def health(lifecycle: Annotated[Lifecycle, Depends(lifecycle_of)]) -> Response:
    """Whether work should be sent here, as /readyz; 200 without a body."""
    await lifecycle.probe()
    return Response()
