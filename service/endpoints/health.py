"""GET /livez and /readyz: what orchestrators ask."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from service.errors import OPEN, Draining, NotReady, documented
from service.lifecycle import Lifecycle

router = APIRouter(tags=["state"])


class Status(BaseModel):
    """A yes."""

    status: str


def lifecycle_of(request: Request) -> Lifecycle:
    """The service's state."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


@router.get("/livez", responses=documented(*OPEN, NotReady))
async def livez(lifecycle: Annotated[Lifecycle, Depends(lifecycle_of)]) -> Status:
    """Whether the process answers and computes; a restart is due when it does not."""
    lifecycle.check_live()
    return Status(status="live")


@router.get("/readyz", responses=documented(*OPEN, NotReady, Draining))
async def readyz(lifecycle: Annotated[Lifecycle, Depends(lifecycle_of)]) -> Status:
    """Whether work should be sent here."""
    await lifecycle.probe()
    return Status(status="ready")
