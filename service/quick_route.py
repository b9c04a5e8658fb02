"""FastAPI's work on a JSON request, done directly: its general way costs twice as much.

What is read, checked and answered is the same, and so is the OpenAPI document, which FastAPI makes
from the signature. Only endpoints of one body, the service and `Accept` are served this way.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.endpoints.schemas import service_of

Handler = Callable[[Request], Awaitable[Response]]


def quick_handler(route: APIRoute) -> Handler | None:
    """The handler of a route, or None where only FastAPI's own will do."""
    endpoint, dependant = route.endpoint, route.dependant
    parameters = inspect.signature(endpoint).parameters
    model: Any = getattr(parameters.get("body"), "annotation", None)
    plain = (
        inspect.iscoroutinefunction(endpoint)
        and inspect.isclass(model)
        and issubclass(model, BaseModel)
        and parameters.keys() <= {"body", "service", "accept"}
        and [each.call for each in dependant.dependencies] == [service_of]
        and [each.name for each in dependant.header_params] == ["accept"][: len(parameters) - 2]
    )
    if not plain:
        return None
    takes_accept = "accept" in parameters

    async def handle(request: Request) -> Response:
        given: dict[str, Any] = {
            "body": _checked(model, await _value(request)),
            "service": await service_of(request),
        }
        if takes_accept:
            given["accept"] = request.headers.get("accept", "")
        answer: Response = await endpoint(**given)
        return answer

    return handle


async def _value(request: Request) -> Any:
    """What the body says.

    Raises:
        RequestValidationError: It is empty, or no JSON.
        HTTPException: It could not be read.
    """
    try:
        if await request.body():
            return await request.json()
    except json.JSONDecodeError as cause:
        failure = {"type": "json_invalid", "loc": ("body", cause.pos), "ctx": {"error": cause.msg}}
        raise RequestValidationError([failure]) from cause
    except Exception as cause:
        raise HTTPException(400) from cause
    raise RequestValidationError([{"type": "missing", "loc": ("body",)}])


def _checked(model: type[BaseModel], value: Any) -> BaseModel:
    """The body as its model.

    Raises:
        RequestValidationError: It does not fit.
    """
    try:
        return model.model_validate(value)
    except ValidationError as cause:
        failures = cause.errors(include_url=False)
        placed = [{**failure, "loc": ("body", *failure["loc"])} for failure in failures]
        raise RequestValidationError(placed) from None


class Direct:
    """The endpoints that are asked most, found by their path alone; `rest` answers all else.

    Args:
        routes: Those that `quick_handler` serves are taken.
        failed: Turns what a handler raises into the answer.
    """

    def __init__(
        self,
        rest: ASGIApp,
        routes: Iterable[BaseRoute],
        *,
        failed: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self._rest, self._failed = rest, failed
        self._routes = {
            route.path: (route, route.get_route_handler())
            for route in routes
            if isinstance(route, APIRoute) and route.methods == {"POST"} and quick_handler(route)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = self._routes.get(scope.get("path", ""))
        if found is None or scope["type"] != "http" or scope["method"] != "POST":
            await self._rest(scope, receive, send)
            return
        scope["route"], handle = found
        request = scope["route"].request_class(scope, receive)
        try:
            answer = await handle(request)
        except Exception as error:  # the boundary that FastAPI's middleware is elsewhere  # noqa: BLE001
            answer = await self._failed(request, error)
        await answer(scope, receive, send)
