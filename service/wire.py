"""Bodies in and out: JSON by orjson, strict and bounded; vectors as base64 or safetensors."""

import asyncio
import base64
import struct
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from service.errors import InvalidField, UnsupportedMediaType
from service.quick_route import quick_handler
from service.record import current
from service.tensors import HEADER_LENGTH, with_binary_inputs

PATIENCE_SECONDS = 0.02  # from which an answer is slow enough to ask whether its client waits
JSON = b"application/json"
BYTES_ON_THE_LOOP = 65536  # of an answer that is written in about a millisecond
GONE = 499  # nginx's status for a client that closed; seen by the metrics alone


class JsonRequest(Request):
    """A request whose body is JSON of bounded size.

    orjson refuses what other parsers let through and no encoder takes back: NaN, infinity, lone
    surrogates.

    Attributes:
        complete: Set when the whole body has come: what comes after it can only be a disconnect.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.complete = asyncio.Event()

    async def body(self) -> bytes:
        """The whole body; the door has bounded its size.

        Raises:
            ClientDisconnect: It will not come.
        """
        if not hasattr(self, "_body"):
            chunks, more = [], True
            while more:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunks.append(message.get("body", b""))
                more = message.get("more_body", False)
            self._body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self.complete.set()
        return self._body

    async def json(self) -> Any:
        """The body's value."""
        return orjson.loads(await self.body())


class TensorRequest(JsonRequest):
    """A request whose JSON may be followed by the bytes of tensors."""

    async def json(self) -> Any:
        """The body's value, with the tensors in it.

        Raises:
            InvalidField: The header that says where the bytes begin does not fit the body.
        """
        body = await self.body()
        length = self.headers.get(HEADER_LENGTH)
        if length is None:
            return orjson.loads(body)
        if not (length.isascii() and length.isdigit() and int(length) <= len(body)):
            raise InvalidField(f"{HEADER_LENGTH} is no length of a part of the body.")
        return with_binary_inputs(orjson.loads(body[: int(length)]), body[int(length) :])


class JsonRoute(APIRoute):
    """A route that reads `JsonRequest`s, refuses other types, and stops when the client leaves."""

    request_class: type[JsonRequest] = JsonRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the checks."""
        handle = quick_handler(self) or super().get_route_handler()

        async def checked(request: Request) -> Response:
            if request.scope["method"] == "POST":
                _check_type(request.scope, tensors=self.request_class is TensorRequest)
            json_request = (
                request
                if isinstance(request, self.request_class)
                else self.request_class(request.scope, request.receive)
            )
            watch = Watch(json_request)
            try:
                return await handle(json_request)
            except asyncio.CancelledError:
                if not watch.left:
                    raise
                watch.taken()
                return Response(status_code=GONE)  # to no one
            finally:
                watch.end()

        return checked


class TensorRoute(JsonRoute):
    """A route that also takes the bytes of tensors behind the JSON."""

    request_class = TensorRequest


class Watch:
    """Cancels the task that answers once its client has closed the connection.

    What waits in the queue is dropped with it. Most answers are sent before anyone need look.

    Attributes:
        left: Whether the client has.
    """

    def __init__(self, request: JsonRequest) -> None:
        self._request, self.left = request, False
        self._answering = asyncio.current_task()
        self._leaving: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PATIENCE_SECONDS, self._look)

    def taken(self) -> None:
        """The cancellation has reached whom it was meant for."""
        if self._answering is not None:
            self._answering.uncancel()

    def end(self) -> None:
        """The answer is there, or nobody wants it."""
        self._timer.cancel()
        if self._leaving is not None:
            self._leaving.cancel()

    def _look(self) -> None:
        self._leaving = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await self._request.complete.wait()
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._answering is not None:
            self._answering.cancel()


def _check_type(scope: Scope, *, tensors: bool) -> None:
    """Refuse what is not JSON; with `tensors`, JSON and bytes may come under any type."""
    headers = current().headers
    kind = headers.get(b"content-type", JSON).partition(b";")[0].strip()
    mixed = tensors and HEADER_LENGTH.encode() in headers
    if kind.lower() != JSON and not mixed:
        raise UnsupportedMediaType("The body must be JSON; send Content-Type: application/json.")
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding != b"identity":
        raise UnsupportedMediaType("The body must not be compressed; leave out Content-Encoding.")
    if b"content-type" not in headers or mixed:  # FastAPI reads JSON only where it is named
        others = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        scope["headers"] = [*others, (b"content-type", JSON)]


class QuickResponse(Response):
    """A response whose head is written without the general way's checks of our own fields."""

    def __init__(self, body: bytes, media_type: bytes, headers: Mapping[str, str]) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", media_type),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]


def json_answer(value: Any, headers: Callable[[], Mapping[str, str]] = dict) -> Response:
    """A JSON response, numpy arrays included; `headers` is asked once the body is written."""
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return QuickResponse(content, JSON, headers())


def base64_of(array: NDArray[Any]) -> str:
    """An array's float32 numbers, little-endian, as OpenAI's clients read them."""
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


SAFETENSORS = "application/x-safetensors"
DTYPES = {"<f4": "F32", "<i4": "I32"}


def wants_safetensors(accept: str) -> bool:
    """Whether an Accept header asks for it by name."""
    return any(part.partition(";")[0].strip().lower() == SAFETENSORS for part in accept.split(","))


def safetensors_answer(
    tensors: Mapping[str, NDArray[Any]],
    details: Any,
    headers: Callable[[], Mapping[str, str]] = dict,
) -> Response:
    """Arrays of float32 or int32 in the safetensors format; `details` is JSON in its metadata.

    Source: the format's README: the header's length as u64, the header as JSON, then the bytes.
    """
    header: dict[str, Any] = {"__metadata__": {"details": orjson.dumps(details).decode()}}
    chunks, end = [], 0
    for name, array in tensors.items():
        dtype = "<i4" if np.issubdtype(array.dtype, np.integer) else "<f4"
        chunks.append(np.ascontiguousarray(array, dtype).tobytes())
        begin, end = end, end + len(chunks[-1])
        header[name] = {
            "dtype": DTYPES[dtype],
            "shape": array.shape,
            "data_offsets": [begin, end],
        }
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    content = b"".join([struct.pack("<Q", len(text)), text, *chunks])
    return QuickResponse(content, SAFETENSORS.encode(), headers())


# In the OpenAPI document, beside the JSON answer.
OR_SAFETENSORS: dict[int | str, dict[str, Any]] = {
    200: {"content": {SAFETENSORS: {"schema": {"type": "string", "format": "binary"}}}}
}
