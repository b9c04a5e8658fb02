"""POST /embed: one vector a text."""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import Field

from service.endpoints.schemas import Body, Service, Texts, Truncate
from service.errors import COMMON, InvalidField, NonFinite, NotOffered, documented
from service.inference import Inference
from service.models import Work
from service.windows import Window, keep_left, keep_right
from service.wire import JsonRoute, json_answer

router = APIRouter(route_class=JsonRoute, tags=["inference"])


class EmbedBody(Body):
    """Texts to embed."""

    inputs: Texts
    normalize: bool = Field(True, description="Scale each vector to length 1.")
    truncate: Truncate = None
    truncation_direction: Literal["left", "Left", "right", "Right"] = Field(
        "right", description="The side that is cut."
    )
    dimensions: Annotated[
        int | None, Field(ge=1, description="Keep this many leading features.")
    ] = None
    pooling: Annotated[
        str, Field(description="How tokens become one vector; /info lists what there is.")
    ] = "mean"
    prompt_name: str | None = Field(None, description="A prefix the model was trained with.")


@router.post("/embed", response_model=list[list[float]], responses=documented(*COMMON, NotOffered))
async def embed(body: EmbedBody, service: Service) -> Response:
    """Embed each text: always a list of vectors, in order."""
    request = service.on(body.model, task="embed")
    _check(body, request)
    left = body.truncation_direction.lower() == "left"
    windows = await request.windows(
        body.inputs,
        truncate=body.truncate,
        keep=keep_right if left else keep_left,
    )
    output = f"pooled_{body.pooling}"
    jobs = request.jobs(windows, lambda window: Work(window.ids, frozenset({output})))
    answers = await request.answers(jobs)
    vectors = np.stack([answer.value[output] for answer in answers])[:, : body.dimensions]
    vectors = _unit(vectors, windows) if body.normalize else np.ascontiguousarray(vectors)
    return json_answer(vectors, request.done)


def _check(body: EmbedBody, request: Inference) -> None:
    model = request.model
    if body.pooling not in model.poolings:
        raise NotOffered(f"This model has no such pooling; there are: {', '.join(model.poolings)}.")
    if body.prompt_name is not None:
        raise NotOffered("This model has no prompts; leave out prompt_name.")
    if body.dimensions is not None and body.dimensions > model.d_model:
        raise InvalidField(
            f"dimensions is {body.dimensions}; this model's vectors have {model.d_model}."
        )


def _unit(vectors: NDArray[Any], windows: list[Window]) -> NDArray[Any]:
    """Vectors of length 1.

    Raises:
        NonFinite: One has no direction.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not lengths.all():
        raise NonFinite(index=windows[int(np.argmin(lengths))].index)
    unit: NDArray[Any] = vectors / lengths
    return unit
