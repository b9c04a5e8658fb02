"""GET /info: what is served, where it runs, and the limits."""

from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from service.endpoints.schemas import Service
from service.metrics import ModelFacts

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
    max_body_bytes: int
    max_answer_bytes: int
    auto_truncate: bool


class Info(BaseModel):
    """What is served."""

    model: str
    mixer: str
    kind: str
    sha256: str
    n_layers: int
    n_heads: int
    d_model: int
    vocab_size: int
    tokenizer: str
    poolings: list[str]
    provider: str
    provider_requested: str
    runtime_version: str
    variants: dict[str, VariantInfo]
    limits: Limits
    training: dict[str, Any]
    version: str


def facts_of(request: Request) -> ModelFacts:
    """What the metrics say of the model."""
    facts: ModelFacts = request.app.state.facts
    return facts


@router.get("/info")
async def info(service: Service, facts: Annotated[ModelFacts, Depends(facts_of)]) -> Info:
    """The model, its provider, its exactness and the limits."""
    model, settings = service.model, service.settings
    manifest = model.artefact.manifest
    return Info(
        model=model.name,
        mixer=facts.mixer,
        kind=model.kind,
        sha256=facts.sha256,
        n_layers=model.n_layers,
        n_heads=model.n_heads,
        d_model=model.d_model,
        vocab_size=model.tokenizer.vocab_size,
        tokenizer=model.tokenizer.kind,
        poolings=list(model.poolings),
        provider=facts.provider,
        provider_requested=facts.provider_requested,
        runtime_version=facts.runtime_version,
        variants={graph: _variant(service, graph) for graph in ("encode", "attention")},
        limits=Limits(
            max_tokens=model.max_tokens,
            max_texts=settings.max_texts,
            max_body_bytes=settings.max_body_bytes,
            max_answer_bytes=settings.max_answer_bytes,
            auto_truncate=settings.auto_truncate,
        ),
        training=dict(manifest["training"]),
        version=version("maskwright"),
    )


def _variant(service: Service, graph: str) -> VariantInfo:
    variant = service.model.engine.variant(graph)
    return VariantInfo(
        name=variant.name,
        form=variant.form,
        precision=variant.precision,
        parity=dict(variant.parity),
        alone_against_batched=variant.alone_against_batched,
    )
