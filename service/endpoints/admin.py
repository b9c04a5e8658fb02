"""POST /admin/reload, on the admin port alone."""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from service.errors import Forbidden, ReloadRefused
from service.reload import Reloader, ReloadFailed

router = APIRouter(tags=["admin"])


class Reloaded(BaseModel):
    """What serves now."""

    status: str
    sha256: list[str]


@router.post("/admin/reload")
async def reload(request: Request) -> Reloaded:
    """Read models and keys anew; on any failure what served before goes on."""
    if "origin" in request.headers:
        raise Forbidden("Web pages may not administer the service.")
    reloader: Reloader = request.app.state.reloader
    try:
        return Reloaded(status="reloaded", sha256=await reloader.reload())
    except ReloadFailed as error:
        raise ReloadRefused(f"All stays as it was: {error}") from error
