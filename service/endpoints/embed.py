"""POST /embed and /similarity: one vector a text; how like one text is to others."""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from service.embedding import Vectors, Wanted, embed
from service.endpoints.schemas import (
    Accept,
    Body,
    Cut,
    ItemError,
    Partial,
    Service,
    TextsOrIds,
    Timings,
    Truncate,
)
from service.errors import COMMON, AnswerTooLarge, NotOffered, documented
from service.inference import Inference
from service.off_loop import off_the_loop
from service.wire import (
    OR_SAFETENSORS,
    JsonRoute,
    base64_of,
    json_answer,
    safetensors_answer,
    wants_safetensors,
)

router = APIRouter(route_class=JsonRoute, tags=["inference"])

Direction = Annotated[
    Literal["left", "Left", "right", "Right"], Field(description="The side that is cut.")
]
PromptName = Annotated[
    str | None,
    Field(description="A text that the model was trained to see before each; /info lists them."),
]
Pooling = Annotated[
    str | None,
    Field(description="How tokens become one vector; /info lists them, the first is the default."),
]


class EmbedBody(Body):
    """Texts to embed."""

    inputs: TextsOrIds
    normalize: Annotated[bool | None, Field(description="Scale each vector to length 1.")] = True
    truncate: Truncate = None
    truncation_direction: Direction = "right"
    dimensions: Annotated[
        int | None, Field(ge=1, description="Keep this many leading features.")
    ] = None
    pooling: Pooling = None
    prompt_name: PromptName = None
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="`base64`: float32, little-endian."
    )
    details: bool = Field(False, description="Say of each text what the model read, and the times.")
    partial: Partial = False

    def wanted(self) -> Wanted:
        """The options without HTTP."""
        return Wanted(
            pooling=self.pooling,
            normalize=self.normalize is not False,
            dimensions=self.dimensions,
            truncate=self.truncate,
            left=self.truncation_direction.lower() == "left",
            prompt_name=self.prompt_name,
        )


class TextEmbedding(Cut):
    """A text's vector."""

    embedding: list[float] | str


class Details(BaseModel):
    """The answer when `details` or `partial` is true."""

    model: str
    results: list[TextEmbedding | ItemError]
    timings: Timings


@router.post(
    "/embed",
    response_model=list[list[float]] | list[str] | Details,
    responses=OR_SAFETENSORS | documented(*COMMON, NotOffered, AnswerTooLarge),
)
async def post_embed(body: EmbedBody, service: Service, accept: Accept = "") -> Response:
    """Embed each text: always a list of vectors, in order."""
    request = service.on(body.model, task="embed", partial=body.partial)
    binary = wants_safetensors(accept)
    form = "binary" if binary else body.encoding_format
    vectors = await embed(request, body.inputs, body.wanted(), form=form)

    def answer() -> Response:
        if binary:
            rows = [vector for _, vector in vectors]
            tensors = {"embeddings": np.stack(rows)} if rows else {}
            facts = request.beside_failures([(w, w.facts()) for w, _ in vectors])
            details = {"model": request.model.name, "results": facts}
            return safetensors_answer(tensors, details, request.done)
        return json_answer(_answer(vectors, body, request), request.done)

    large = len(vectors) * request.model.d_model > 16384  # a millisecond of JSON
    return await off_the_loop(answer, large=large)


def _answer(vectors: Vectors, body: EmbedBody, request: Inference) -> Any:
    base64 = body.encoding_format == "base64"
    written = [(window, base64_of(v) if base64 else v) for window, v in vectors]
    if not (body.details or body.partial):
        return [vector for _, vector in written]
    results = [(window, window.facts() | {"embedding": vector}) for window, vector in written]
    return {
        "model": request.model.name,
        "results": request.beside_failures(results),
        "timings": request.timings(),
    }


class Sentences(BaseModel):
    """One text, and those it is compared with."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source_sentence: Annotated[str, Field(examples=["O Romeo"])]
    sentences: Annotated[list[str], Field(min_length=1, examples=[["O Juliet", "To be"]])]


class SimilarityParameters(BaseModel):
    """How the texts are embedded."""

    model_config = ConfigDict(extra="forbid", strict=True)

    truncate: Truncate = None
    truncation_direction: Direction = "right"
    prompt_name: PromptName = None
    pooling: Pooling = None


class SimilarityBody(Body):
    """Texts to compare."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


@router.post(
    "/similarity",
    response_model=list[float],
    responses=documented(*COMMON, NotOffered),
)
async def similarity(body: SimilarityBody, service: Service) -> Response:
    """Give the cosine between one text and each of a list; errors count its texts from 0."""
    request = service.on(body.model, task="embed")
    options = body.parameters or SimilarityParameters()
    wanted = Wanted(
        pooling=options.pooling,
        truncate=options.truncate,
        left=options.truncation_direction.lower() == "left",
        prompt_name=options.prompt_name,
    )
    source, others = body.inputs.source_sentence, body.inputs.sentences
    [(_, one)] = await embed(request, source, wanted, form="binary")
    rows = [vector for _, vector in await embed(request, others, wanted, form="binary")]
    return json_answer(np.stack(rows) @ one, request.done)
