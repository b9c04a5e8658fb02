"""Bodies in and out: JSON by orjson, strict and bounded."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from service.errors import BodyTooLarge, UnsupportedMediaType
from service.inference import Window


class JsonRequest(Request):
    """A request whose body is JSON of bounded size.

    orjson refuses what other parsers let through and no encoder takes back: NaN, infinity, lone
    surrogates.
    """

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            BodyTooLarge: As soon as more is announced or has come than the setting allows.
        """
        if not hasattr(self, "_body"):
            limit = self.app.state.settings.max_body_bytes
            announced = self.headers.get("content-length", "")
            if announced.isdigit() and int(announced) > limit:
                raise BodyTooLarge(limit=limit)
            chunks, n_bytes = [], 0
            async for chunk in self.stream():
                n_bytes += len(chunk)
                if n_bytes > limit:
                    raise BodyTooLarge(limit=limit)
                chunks.append(chunk)
            self._body = b"".join(chunks)
        return self._body

    async def json(self) -> Any:
        """The body's value."""
        return orjson.loads(await self.body())


class JsonRoute(APIRoute):
    """A route that reads `JsonRequest`s and refuses bodies of other types."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the checks."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if request.method == "POST":
                _check_type(request)
            return await handle(JsonRequest(request.scope, request.receive))

        return checked


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind.lower() != "application/json":
        raise UnsupportedMediaType("The body must be JSON; send Content-Type: application/json.")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType("The body must not be compressed; leave out Content-Encoding.")
    if "content-type" not in request.headers:  # FastAPI reads JSON only where it is named
        request.scope["headers"].append((b"content-type", b"application/json"))


def json_answer(value: Any, *, windows: Sequence[Window] = ()) -> Response:
    """A JSON response, numpy arrays included; a header names the texts that were cut."""
    cut = [str(index) for index, window in enumerate(windows) if window.truncated]
    headers = {"x-truncated-inputs": ",".join(cut[:100])} if cut else None
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json", headers=headers)
