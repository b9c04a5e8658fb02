"""The Open Inference Protocol, version 2: models `fill-mask` and `embed`, which take texts.

A model's versions are the names of the artefacts that are served. Tensors come and go in JSON or,
as tritonclient sends them, as bytes behind it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Path, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.embedding import check_size, embed
from service.endpoints.embed import EmbedBody
from service.endpoints.fill_mask import top_k_of
from service.endpoints.health import lifecycle_of
from service.endpoints.schemas import Service, Truncate
from service.error_forms import OPEN_INFERENCE
from service.errors import (
    ANY,
    COMMON,
    OPEN,
    AnswerTooLarge,
    Draining,
    InvalidField,
    MasksTooFarApart,
    NoMask,
    NotOffered,
    NotReady,
    UnknownModel,
)
from service.filling import likeliest
from service.inference import Inference
from service.inference import Service as Backend
from service.lifecycle import Lifecycle
from service.off_loop import off_the_loop
from service.tensors import HEADER_LENGTH, Tensor, output_tensor, texts_of
from service.windows import keep_around
from service.wire import TensorRoute

Name = Annotated[str, Path(examples=["embed", "fill-mask"])]
Version = Annotated[str, Path(description="An artefact's name.", examples=["english-mhsa"])]

router = APIRouter(route_class=TensorRoute, tags=["open inference protocol"])


class InputTensor(BaseModel):
    """Texts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["text"]
    shape: Annotated[list[int], Field(examples=[[1]])]
    datatype: Literal["BYTES"]
    parameters: dict[str, Any] | None = None
    data: Annotated[list[Any], Field(examples=[["to b[MASK]"]])]


class RequestedOutput(BaseModel):
    """An output that is wanted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    parameters: dict[str, Any] | None = None


class InferBody(BaseModel):
    """Texts for a model."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=1)]
    outputs: list[RequestedOutput] | None = None


class OutputTensor(BaseModel):
    """An answer."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = Field(None, description="Flat, row-major; absent if bytes follow.")


class InferAnswer(BaseModel):
    """A model's answer."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]


TOKENS_ON_THE_LOOP = 1000  # a millisecond


class EmbedParameters(BaseModel):
    """Parameters of `embed`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    normalize: bool = True
    truncate: Truncate = None
    truncation_direction: Literal["left", "right"] = "right"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    pooling: str | None = None
    prompt_name: str | None = None


class FillMaskParameters(BaseModel):
    """Parameters of `fill-mask`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    top_k: Annotated[int | None, Field(ge=1)] = None
    truncate: Truncate = None


Outputs = Mapping[str, Tensor]


async def _embed(texts: list[str], parameters: Any, request: Inference) -> Outputs:
    options = EmbedBody(inputs=texts, **parameters.model_dump()).wanted()
    vectors = await embed(request, texts, options)
    return {"embedding": np.stack([vector for _, vector in vectors])}


async def _fill_mask(texts: list[str], parameters: Any, request: Inference) -> Outputs:
    tokenizer = request.model.tokenizer
    top_k = top_k_of(parameters.top_k, None, tokenizer.vocab_size)
    windows = await request.windows(
        texts, truncate=parameters.truncate, keep=keep_around(tokenizer.mask_id)
    )
    n_masks = sum(len(window.columns_of(tokenizer.mask_id)) for window in windows)
    check_size(n_masks * top_k * 4, "float", request)
    filled = await likeliest(request, windows, top_k=top_k)

    def outputs() -> Outputs:
        masks = [(window.index, ranked) for window, ranks in filled.items() for ranked in ranks]
        tokens = np.array([[ids[0] for ids, _ in ranked] for _, ranked in masks], np.int64)
        logprobs = np.array([[logprob for _, logprob in ranked] for _, ranked in masks])
        return {
            "token_str": [[tokenizer.token_str(token) for token in row] for row in tokens.tolist()],
            "token": tokens,
            "score": np.exp(logprobs).astype(np.float32),
            "text_index": np.array([index for index, _ in masks], np.int64),
        }

    return await off_the_loop(outputs, large=n_masks * top_k >= TOKENS_ON_THE_LOOP)


@dataclass(frozen=True)
class Protocol:
    """What a model of the protocol takes and gives; -1 is any size."""

    task: str
    parameters: type[BaseModel]
    outputs: Mapping[str, tuple[str, list[int]]]
    run: Callable[[list[str], Any, Inference], Awaitable[Outputs]]


MODELS = {
    "fill-mask": Protocol(
        "fill-mask",
        FillMaskParameters,
        {
            "token_str": ("BYTES", [-1, -1]),
            "token": ("INT64", [-1, -1]),
            "score": ("FP32", [-1, -1]),
            "text_index": ("INT64", [-1]),
        },
        _fill_mask,
    ),
    "embed": Protocol("embed", EmbedParameters, {"embedding": ("FP32", [-1, -1])}, _embed),
}


class ServerMetadata(BaseModel):
    """What answers."""

    name: str
    version: str
    extensions: list[str]


@router.get("/v2", responses=OPEN_INFERENCE.documented(*ANY))
async def server() -> ServerMetadata:
    """Say what answers."""
    return ServerMetadata(
        name="maskwright", version=version_of("maskwright"), extensions=["binary_tensor_data"]
    )


Readiness = Annotated[Lifecycle, Depends(lifecycle_of)]


class Live(BaseModel):
    """Whether the process answers."""

    live: bool


class Ready(BaseModel):
    """Whether work should be sent here."""

    ready: bool


@router.get("/v2/health/live", responses=OPEN_INFERENCE.documented(*OPEN, NotReady))
async def live(lifecycle: Readiness) -> Live:
    """Whether the process answers and computes."""
    lifecycle.check_live()
    return Live(live=True)


@router.get("/v2/health/ready", responses=OPEN_INFERENCE.documented(*OPEN, NotReady, Draining))
async def ready(lifecycle: Readiness) -> Ready:
    """Whether work should be sent here."""
    await lifecycle.probe()
    return Ready(ready=True)


class TensorMetadata(BaseModel):
    """A tensor that a model takes or gives."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A model of the protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


@router.get("/v2/models/{name}", responses=OPEN_INFERENCE.documented(*ANY, UnknownModel))
async def metadata(name: Name, service: Service) -> ModelMetadata:
    """Say what a model takes and gives."""
    return _metadata(name, None, service)


@router.get(
    "/v2/models/{name}/versions/{version}", responses=OPEN_INFERENCE.documented(*ANY, UnknownModel)
)
async def version_metadata(name: Name, version: Version, service: Service) -> ModelMetadata:
    """Say what a model takes and gives, by the name of an artefact."""
    return _metadata(name, version, service)


class ModelReady(BaseModel):
    """Whether work should be sent to a model."""

    name: str
    ready: bool


READY_ERRORS = OPEN_INFERENCE.documented(*ANY, UnknownModel, NotReady, Draining)


@router.get("/v2/models/{name}/ready", responses=READY_ERRORS)
async def model_ready(name: Name, service: Service, lifecycle: Readiness) -> ModelReady:
    """Whether work should be sent to a model."""
    _found(name, None, service)
    await lifecycle.probe()
    return ModelReady(name=name, ready=True)


@router.get("/v2/models/{name}/versions/{version}/ready", responses=READY_ERRORS)
async def version_ready(
    name: Name, version: Version, service: Service, lifecycle: Readiness
) -> ModelReady:
    """Whether work should be sent to a model, by the name of an artefact."""
    _found(name, version, service)
    await lifecycle.probe()
    return ModelReady(name=name, ready=True)


INFER_ERRORS = OPEN_INFERENCE.documented(
    *COMMON, NoMask, MasksTooFarApart, NotOffered, AnswerTooLarge
)


@router.post("/v2/models/{name}/infer", response_model=InferAnswer, responses=INFER_ERRORS)
async def infer(name: Name, body: InferBody, service: Service) -> Response:
    """Run a model on texts."""
    return await _infer(name, None, body, service)


@router.post(
    "/v2/models/{name}/versions/{version}/infer",
    response_model=InferAnswer,
    responses=INFER_ERRORS,
)
async def version_infer(
    name: Name, version: Version, body: InferBody, service: Service
) -> Response:
    """Run a model on texts, by the name of an artefact."""
    return await _infer(name, version, body, service)


def _found(name: str, version: str | None, service: Backend) -> Protocol:
    """The model of a name.

    Raises:
        UnknownModel: There is none, or no artefact of the version's name.
    """
    if name not in MODELS:
        raise UnknownModel(served=", ".join(MODELS))
    service.registry.find(version)
    return MODELS[name]


def _metadata(name: str, version: str | None, service: Backend) -> ModelMetadata:
    outputs = _found(name, version, service).outputs
    return ModelMetadata(
        name=name,
        versions=service.registry.names,
        platform="onnx_onnxv1",
        inputs=[TensorMetadata(name="text", datatype="BYTES", shape=[-1])],
        outputs=[
            TensorMetadata(name=output, datatype=datatype, shape=shape)
            for output, (datatype, shape) in outputs.items()
        ],
    )


async def _infer(name: str, version: str | None, body: InferBody, service: Backend) -> Response:
    protocol = _found(name, version, service)
    given = dict(body.parameters or {})
    every_binary = given.pop("binary_data_output", False)
    parameters = _parameters(protocol, given)
    wanted = _wanted(protocol, body.outputs, every_binary=every_binary is True)
    request = service.on(version, task=protocol.task)
    outputs = await protocol.run(texts_of(body.inputs[0], 0), parameters, request)

    def answer() -> Response:
        tensors = [output_tensor(n, outputs[n], binary=b) for n, b in wanted.items()]
        described: dict[str, Any] = {"model_name": name, "model_version": request.model.name}
        if body.id is not None:
            described["id"] = body.id
        described["outputs"] = [tensor for tensor, _ in tensors]
        text, raw = orjson.dumps(described), b"".join(raw for _, raw in tensors)
        headers = request.done()
        if not any(wanted.values()):
            return Response(text, media_type="application/json", headers=headers)
        headers[HEADER_LENGTH] = str(len(text))
        return Response(text + raw, media_type="application/octet-stream", headers=headers)

    return await asyncio.to_thread(answer)


def _parameters(protocol: Protocol, given: dict[str, Any]) -> BaseModel:
    try:
        return protocol.parameters(**given)
    except ValidationError as cause:
        first = cause.errors()[0]
        there = ", ".join(protocol.parameters.model_fields)
        raise InvalidField(
            f"parameters.{ascii(first['loc'][0])[1:41]}: {first['msg']}; there are: {there}."
        ) from None


def _wanted(
    protocol: Protocol, outputs: list[RequestedOutput] | None, *, every_binary: bool
) -> dict[str, bool]:
    """The outputs that are wanted, and whether each goes as bytes."""
    if not outputs:
        return dict.fromkeys(protocol.outputs, every_binary)
    wanted = {}
    for number, output in enumerate(outputs):
        if output.name not in protocol.outputs:
            there = ", ".join(protocol.outputs)
            raise InvalidField(f"outputs[{number}] has another name; there are: {there}.")
        binary = (output.parameters or {}).get("binary_data", every_binary)
        wanted[output.name] = binary is True
    return wanted
