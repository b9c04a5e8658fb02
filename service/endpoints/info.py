"""GET /info: what is served, where it runs, and the limits."""

from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from service.endpoints.schemas import Service
from service.errors import ANY, UnknownModel, documented
from service.models import Model
from service.settings import Settings

router = APIRouter(tags=["state"])


class VariantInfo(BaseModel):
    """The graph that answers, and how exact it is."""

    name: str
    form: str
    precision: str
    parity: dict[str, float]
    alone_against_batched: float


class Limits(BaseModel):
    """What one request may ask."""

    max_tokens: int
    max_texts: int
    max_passes: int
    max_body_bytes: int
    max_answer_bytes: int
    auto_truncate: bool


class EmbeddingModel(BaseModel):
    """How tokens become one vector unless a request says otherwise."""

    pooling: str


class ModelType(BaseModel):
    """What kind of model it is, as text-embeddings-inference says it."""

    embedding: EmbeddingModel


class InfoForClients(BaseModel):
    """The fields that clients of text-embeddings-inference read."""

    model_id: str
    model_sha: str
    model_dtype: str = Field(description="`float32` or `float16`.")
    served_model_name: str
    model_type: ModelType
    max_concurrent_requests: int = Field(description="Texts of the model's length that may wait.")
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None = None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int = 1
    version: str


class Info(InfoForClients):
    """What is served."""

    model: str
    models: list[str] = Field(description="All that are served; the first is the default.")
    mixer: str
    kind: str
    sha256: str
    n_layers: int
    n_heads: int
    d_model: int
    vocab_size: int
    tokenizer: str
    poolings: list[str]
    prompts: list[str]
    provider: str
    provider_requested: str
    runtime_version: str
    variants: dict[str, VariantInfo]
    limits: Limits
    training: dict[str, Any]


@router.get("/info", responses=documented(*ANY, UnknownModel))
async def info(
    service: Service,
    model: Annotated[str | None, Query(description="Name of the model; else the first.")] = None,
) -> Info:
    """The model, its provider, its exactness and the limits."""
    found, settings = service.registry.find(model), service.settings
    manifest, facts = found.artefact.manifest, found.facts(settings.device)
    return Info(
        **_for_clients(found, settings).model_dump(),
        model=found.name,
        models=service.registry.names,
        mixer=facts.mixer,
        kind=found.kind,
        sha256=facts.sha256,
        n_layers=found.n_layers,
        n_heads=found.n_heads,
        d_model=found.d_model,
        vocab_size=found.tokenizer.vocab_size,
        tokenizer=found.tokenizer.kind,
        poolings=list(found.poolings),
        prompts=list(found.prompts),
        provider=facts.provider,
        provider_requested=facts.provider_requested,
        runtime_version=facts.runtime_version,
        variants={graph: _variant(found, graph) for graph in ("encode", "attention")},
        limits=Limits(
            max_tokens=found.max_tokens,
            max_texts=settings.max_texts,
            max_passes=settings.max_passes,
            max_body_bytes=settings.max_body_bytes,
            max_answer_bytes=settings.max_answer_bytes,
            auto_truncate=settings.auto_truncate,
        ),
        training=dict(manifest["training"]),
    )


def _for_clients(model: Model, settings: Settings) -> InfoForClients:
    provider, precision = model.engine.provider, model.engine.variant("encode").precision
    return InfoForClients(
        model_id=model.artefact.name,
        model_sha=model.artefact.sha256,
        model_dtype={"fp32": "float32", "fp16": "float16"}.get(precision, precision),
        served_model_name=model.name,
        model_type=ModelType(embedding=EmbeddingModel(pooling=model.poolings[0])),
        max_concurrent_requests=max(1, int(settings.max_queue_cost // model.max_tokens)),
        max_input_length=model.max_tokens,
        max_batch_tokens=int(settings.max_batch_cost or provider.max_batch_cost),
        max_client_batch_size=settings.max_texts,
        auto_truncate=settings.auto_truncate,
        version=version("maskwright"),
    )


def _variant(model: Model, graph: str) -> VariantInfo:
    variant = model.engine.variant(graph)
    return VariantInfo(
        name=variant.name,
        form=variant.form,
        precision=variant.precision,
        parity=dict(variant.parity),
        alone_against_batched=variant.alone_against_batched,
    )
