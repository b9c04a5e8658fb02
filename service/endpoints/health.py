"""GET /livez, /readyz and /metrics: what orchestrators and Prometheus ask."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel

from service.errors import Draining, NotReady, documented
from service.lifecycle import Lifecycle
from service.metrics import Metrics

router = APIRouter(tags=["state"])


class Status(BaseModel):
    """A yes."""

    status: str


def lifecycle_of(request: Request) -> Lifecycle:
    """The service's state."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


@router.get("/livez", responses=documented(NotReady))
async def livez(lifecycle: Annotated[Lifecycle, Depends(lifecycle_of)]) -> Status:
    """Whether the process answers and computes; a restart is due when it does not."""
    if lifecycle.failure:
        raise NotReady(f"The service has failed: {lifecycle.failure}.")
    return Status(status="live")


@router.get("/readyz", responses=documented(NotReady, Draining))
async def readyz(lifecycle: Annotated[Lifecycle, Depends(lifecycle_of)]) -> Status:
    """Whether work should be sent here."""
    await lifecycle.probe()
    return Status(status="ready")


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus metrics, in the classic or the OpenMetrics format by the Accept header."""
    state: Metrics = request.app.state.metrics
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    # Rendering takes milliseconds: not on the event loop.
    text = await asyncio.to_thread(encode, state.registry)
    return Response(text, headers={"content-type": content_type})
