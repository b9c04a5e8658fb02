"""POST /v1/embeddings and GET /v1/models, as OpenAI's clients call them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from service.embedding import Wanted, embed
from service.endpoints.schemas import Service, TextsOrIds
from service.error_forms import OPENAI
from service.errors import ANY, COMMON, AnswerTooLarge, NotOffered, UnknownModel
from service.off_loop import off_the_loop
from service.wire import JsonRoute, base64_of, json_answer

router = APIRouter(route_class=JsonRoute, tags=["openai"])


class EmbeddingsBody(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: TextsOrIds
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[
        int | None, Field(ge=1, description="Keep this many leading features.")
    ] = None
    user: Annotated[str | None, Field(description="Taken and not used.")] = None


class Embedding(BaseModel):
    """A text's vector, of length 1."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="`base64`: float32, little-endian.")


class Usage(BaseModel):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The vectors in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


@router.post(
    "/v1/embeddings",
    response_model=Embeddings,
    responses=OPENAI.documented(*COMMON, NotOffered, AnswerTooLarge),
)
async def embeddings(body: EmbeddingsBody, service: Service) -> Response:
    """Embed each text."""
    request = service.on(body.model, task="embed")
    packed = body.encoding_format == "base64"
    wanted = Wanted(dimensions=body.dimensions)
    vectors = await embed(request, body.input, wanted, form=body.encoding_format)

    def answer() -> Response:
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64_of(vector) if packed else vector,
            }
            for index, (_, vector) in enumerate(vectors)
        ]
        usage = {"prompt_tokens": request.n_tokens, "total_tokens": request.n_tokens}
        content = {"object": "list", "data": data, "model": request.model.name, "usage": usage}
        return json_answer(content, request.done)

    large = len(vectors) * request.model.d_model > 16384  # a millisecond of JSON
    return await off_the_loop(answer, large=large)


class ModelEntry(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Field(description="Not known of an artefact: 0.")] = 0
    owned_by: str = "maskwright"


class ModelList(BaseModel):
    """All of them, the default first."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


@router.get("/v1/models", responses=OPENAI.documented(*ANY))
async def models(service: Service) -> ModelList:
    """List the models that are served."""
    return ModelList(data=[ModelEntry(id=name) for name in service.registry.names])


@router.get("/v1/models/{name}", responses=OPENAI.documented(*ANY, UnknownModel))
async def model(name: str, service: Service) -> ModelEntry:
    """Show one of them."""
    return ModelEntry(id=service.registry.find(name).name)
