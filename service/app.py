"""The application: endpoints, failures, metrics and the model, wired together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.admission import Admission
from service.door import Door, template_of
from service.endpoints import (
    admin,
    attention,
    compare,
    embed,
    exposition,
    fill_mask,
    health,
    info,
    open_inference,
    openai,
    score,
    tei,
)
from service.error_forms import form_of
from service.errors import (
    Internal,
    InvalidField,
    MalformedJson,
    MethodNotAllowed,
    NotFound,
    ServiceError,
)
from service.inference import Service
from service.lifecycle import Lifecycle
from service.loop_lag import watch
from service.metrics import REFUSALS, Metrics
from service.quick_route import Direct
from service.record import Record, current
from service.registry import Registry
from service.reload import Reloader
from service.scheduler import Scheduler
from service.security import OPEN_PATHS, Keys
from service.settings import Settings
from service.tracing import Tracer
from service.wire import json_answer

logger = logging.getLogger(__name__)

Handler = Callable[[Request, Exception], Awaitable[Response]]

ROUTERS = (
    fill_mask.router,
    score.router,
    embed.router,
    attention.router,
    compare.router,
    tei.router,
    openai.router,
    open_inference.router,
    info.router,
    health.router,
    tei.state,
)
ADMIN_ROUTERS = (admin.router, exposition.router, health.router)
INFERENCE_ROUTES = (
    "/fill-mask",
    "/score",
    "/embed",
    "/embed_all",
    "/similarity",
    "/attention",
    "/compare",
    "/v1/embeddings",
    "/v2/models/{name}/infer",
    "/v2/models/{name}/versions/{version}/infer",
)


def create_app(settings: Settings, registry: Registry, *, n_workers: int) -> FastAPI:
    """The service around its loaded models."""
    metrics = Metrics(CollectorRegistry())
    app = Application(
        title="Maskwright",
        version=version("maskwright"),
        summary="Fill a masked word, embed a text, show what each head attends to.",
        lifespan=_lifespan,
        redirect_slashes=False,
        docs_url="/docs" if settings.docs else None,
        redoc_url=None,
        openapi_url="/openapi.json" if settings.docs else None,
    )
    app.state.settings = settings
    app.state.registry = registry
    app.state.metrics = metrics
    app.state.n_workers = n_workers
    app.state.scraping = asyncio.Lock()
    app.state.keys = Keys(
        Path(settings.api_keys) if settings.api_keys else None,
        max_open=settings.max_open_per_key,
        per_minute=settings.max_per_minute_per_key,
    )
    app.state.tracer = Tracer(settings.otlp_endpoint) if settings.otlp_endpoint else None
    app.state.lifecycle = Lifecycle(
        metrics, check=registry.verify, check_seconds=settings.check_seconds
    )
    app.state.reloader = Reloader(
        registry,
        keys=app.state.keys,
        metrics=metrics,
        lifecycle=app.state.lifecycle,
        settings=settings,
    )
    for model in registry.models:
        metrics.know_model(model.facts(settings.device))
    routers = ROUTERS if settings.admin_port else (*ROUTERS, exposition.router)
    known = (*routers, *ADMIN_ROUTERS) if settings.admin_port else routers
    metrics.know_routes(_paths(known), inference=INFERENCE_ROUTES)
    _wire(app, routers)
    if settings.cors_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[settings.cors_origin],
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id", "x-timeout-ms"],
        )
    return app


def create_admin(app: FastAPI) -> FastAPI:
    """What is served on the admin port; it shares the state of the service."""
    beside = Admin(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    beside.state = app.state
    _wire(beside, ADMIN_ROUTERS)
    return beside


def _wire(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    for router in routers:
        app.include_router(router)
    for kind, handle in HANDLERS:
        app.add_exception_handler(kind, handle)


class Application(FastAPI):
    """FastAPI behind our door, which is outside of all that FastAPI itself does."""

    open_paths = OPEN_PATHS
    direct: Sequence[BaseRoute] = tuple(route for router in ROUTERS for route in router.routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, without what FastAPI looks for before each: traces have their own."""
        if scope["type"] != "http" or self.middleware_stack is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The door and what is behind it."""
        state = self.state
        behind = super().build_middleware_stack()
        if not state.settings.cors_origin:  # its headers are set in the middleware
            behind = Direct(behind, self.direct, failed=_answer_to)
        return Door(
            behind,
            metrics=state.metrics,
            lifecycle=state.lifecycle,
            keys=state.keys,
            max_body_bytes=state.settings.max_body_bytes,
            render=_service_error,
            admit=self._admit,
            timed=frozenset(INFERENCE_ROUTES),
            open_paths=self.open_paths,
            tracer=state.tracer,
        )

    def _admit(self, record: Record) -> None:
        """Ask the queue before a body is read."""
        admission: Admission = self.state.scheduler.admission
        admission.check_at_the_door(n_bytes=record.n_body, deadline=record.deadline)


class Admin(Application):
    """The same for the admin port: not kept waiting by the queue, and open to scrapes."""

    open_paths = OPEN_PATHS | {"/metrics"}
    direct = ()

    def _admit(self, record: Record) -> None:
        pass


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The scheduler lives on the server's event loop: from its start to its end."""
    settings, registry = app.state.settings, app.state.registry
    provider = registry.default.engine.provider
    scheduler = Scheduler(
        max_batch_cost=settings.max_batch_cost or provider.max_batch_cost,
        call_cost=provider.call_cost,
        max_queue_cost=settings.max_queue_cost,
        max_wait_seconds=settings.max_wait_seconds,
        hang_seconds=settings.hang_seconds,
        failed=app.state.lifecycle.fail,
        n_workers=app.state.n_workers,
        metrics=app.state.metrics,
    )
    app.state.scheduler = scheduler
    app.state.service = Service(registry, scheduler, metrics=app.state.metrics, settings=settings)
    watching = asyncio.create_task(watch(app.state.metrics.loop_lag_seconds.observe))
    app.state.lifecycle.start()
    yield
    app.state.lifecycle.drain()
    await scheduler.close()
    watching.cancel()
    if app.state.tracer:
        await asyncio.to_thread(app.state.tracer.close)


async def _answer_to(request: Request, error: Exception) -> Response:
    """The answer to whatever an endpoint raises."""
    handle = next(handle for kind, handle in HANDLERS if isinstance(error, kind))
    return await handle(request, error)


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    metrics: Metrics = request.app.state.metrics
    current().code = error.code
    route = template_of(request.scope, INFERENCE_ROUTES)
    if route in INFERENCE_ROUTES and (reason := _refusal(error)):
        metrics.refused.labels(reason).inc()
    form = form_of(request.url.path)
    answer = json_answer(form.body(error) if form else error.body())
    answer.status_code = error.status
    answer.headers.update(error.headers)
    return answer


def _refusal(error: ServiceError) -> str | None:
    """Why a request was turned away, as the metrics call it; None for one that failed later."""
    if error.code in REFUSALS:
        return error.code
    if error.status == 413:
        return "too_large"
    return "invalid" if error.status < 424 else None


async def _invalid_body(request: Request, error: Exception) -> Response:
    """A body that is not JSON, or not of the schema; what it holds is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason, at = first["ctx"]["error"], first["loc"][1]
        failure: ServiceError = MalformedJson(
            f"The body is not valid JSON: {reason}, at character {at}."
        )
        return await _service_error(request, failure)
    if first["type"] == "missing" and first["loc"] == ("body",):
        return await _service_error(request, MalformedJson("The body is empty; JSON is wanted."))
    if first["type"] == "model_attributes_type" and len(first["loc"]) == 1:
        return await _service_error(request, InvalidField("The body must be a JSON object."))
    reason, index = first["msg"], first.get("ctx", {}).get("index")
    failure = InvalidField(f"{_place(first['loc'][1:])}: {reason}.", index=index)
    return await _service_error(request, failure)


def _place(location: Sequence[Any]) -> str:
    """`parameters.targets[2]`; a name that is not ours is cut and escaped."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += ("." if path else "") + ascii(part[:40])[1:-1]
    return path


async def _framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ServiceError):  # FastAPI wraps what reading the body raises
        return await _service_error(request, error.__cause__)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").replace("GET", "GET, HEAD")
        failure: ServiceError = MethodNotAllowed(
            f"This path takes {allowed}.", headers={"allow": allowed}
        )
    elif error.status_code == 404:
        failure = NotFound("There is no such path.")
    elif error.status_code == 400:
        failure = MalformedJson("The body could not be read as JSON.")
    else:
        return await _unforeseen(request, error)
    return await _service_error(request, failure)


async def _unforeseen(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _service_error(request, Internal())


HANDLERS: tuple[tuple[type[Exception], Handler], ...] = (
    (ServiceError, _service_error),
    (RequestValidationError, _invalid_body),
    (HTTPException, _framework_error),
    (Exception, _unforeseen),
)


def _paths(routers: Sequence[APIRouter]) -> list[tuple[str, str]]:
    """(path, method) of every endpoint."""
    return [
        (route.path, method)
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]
