"""POST /score: how surprising each token of a text is to the model, given all the others."""

import math
from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field

from service.endpoints.schemas import (
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
from service.errors import COMMON, AnswerTooLarge, MaskNotAllowed, TooMuchWork, documented
from service.inference import Answer, Inference, by_window
from service.models import Work
from service.off_loop import off_the_loop
from service.windows import Window
from service.wire import BYTES_ON_THE_LOOP, JsonRoute, json_answer

BYTES_PER_TOKEN = 100  # of JSON

router = APIRouter(route_class=JsonRoute, tags=["inference"])


class ScoreBody(Body):
    """Texts to score."""

    inputs: Texts
    truncate: Truncate = None
    partial: Partial = False


class ScoredToken(Token):
    """A token and its surprisal."""

    surprisal: float = Field(description="-ln of its probability given the rest, in nats.")


class TextScore(Cut):
    """A text's tokens and its score."""

    pseudo_perplexity: float = Field(description="e to the mean surprisal of its tokens.")
    surprisal: float = Field(description="Sum over its tokens, in nats.")
    tokens: list[ScoredToken]
    n_passes: int = Field(description="Passes through the model: one a token.")


@router.post(
    "/score",
    response_model=TextScore | list[TextScore | ItemError],
    responses=documented(*COMMON, MaskNotAllowed, TooMuchWork, AnswerTooLarge),
)
async def score(body: ScoreBody, service: Service) -> Response:
    """Mask each token of a text in turn and ask how likely it was there.

    The pseudo-perplexity of Salazar et al. 2020 (arXiv:1910.14659). A text takes a pass a token.
    """
    request = service.on(body.model, task="score", partial=body.partial)
    windows = await request.windows(body.inputs, truncate=body.truncate)
    n_passes = sum(window.stop - window.start for window in windows)
    request.check_passes(n_passes)
    n_bytes, limit = n_passes * BYTES_PER_TOKEN, service.settings.max_answer_bytes
    if n_bytes > limit:
        raise AnswerTooLarge(n_bytes=n_bytes, limit=limit)
    jobs = request.jobs(windows, lambda window: _works(window, request))
    answers = by_window(await request.answers(jobs))

    def answer() -> Response:
        results = [(w, _scored(w, of_window, request)) for w, of_window in answers.items()]
        texts = request.beside_failures(results)
        return json_answer(texts[0] if isinstance(body.inputs, str) else texts, request.done)

    return await off_the_loop(answer, large=n_bytes >= BYTES_ON_THE_LOOP)


def _works(window: Window, request: Inference) -> list[Work]:
    """One a token of the text, with a mask in its place.

    Raises:
        MaskNotAllowed: There is one already, whose token nobody knows.
    """
    tokenizer = request.model.tokenizer
    if window.columns_of(tokenizer.mask_id):
        raise MaskNotAllowed(index=window.index)
    first = len(tokenizer.prefix)
    return [
        Work(
            [*window.ids[:column], tokenizer.mask_id, *window.ids[column + 1 :]],
            frozenset({"mask_logprobs"}),
            (column,),
            token_ids=[window.ids[column]],
        )
        for column in range(first, first + window.stop - window.start)
    ]


def _scored(window: Window, answers: list[Answer], request: Inference) -> dict[str, Any]:
    tokenizer = request.model.tokenizer
    surprisals = [-float(answer.value["mask_logprobs"][0, 0]) for answer in answers]
    first = len(tokenizer.prefix)
    tokens = tokens_of(window, tokenizer)[first : first + len(surprisals)]
    total = sum(surprisals)
    return window.facts() | {
        "pseudo_perplexity": math.exp(total / len(surprisals)),
        "surprisal": total,
        "tokens": [
            token | {"surprisal": surprisal}
            for token, surprisal in zip(tokens, surprisals, strict=True)
        ],
        "n_passes": len(surprisals),
    }
