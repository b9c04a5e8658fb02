"""GET /metrics: what Prometheus scrapes."""

import asyncio

from fastapi import APIRouter, Request, Response

from service.errors import ANY, documented
from service.metrics import Metrics

router = APIRouter(tags=["state"])


@router.get("/metrics", response_class=Response, responses=documented(*ANY))
async def metrics(request: Request) -> Response:
    """Prometheus metrics, in the classic or the OpenMetrics format by the Accept header."""
    state: Metrics = request.app.state.metrics
    accept = request.headers.get("accept", "")
    # Rendering takes milliseconds: not on the event loop, and one at a time.
    async with request.app.state.scraping:
        text, content_type = await asyncio.to_thread(state.exposition.render, accept)
    return Response(text, headers={"content-type": content_type})
