"""Every failure a client can meet: one class each, with its status, its code and its sentence.

Messages give numbers, field names and positions; a client's text never.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar


class ServiceError(Exception):
    """A failure that is answered as JSON.

    Attributes:
        status: HTTP status.
        code: Stable name of the failure, ours.
        error_type: Its kind as clients of text-embeddings-inference read it.
        index: Which text of a list it concerns.
        headers: Sent with the answer.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    error_type: ClassVar[str]

    def __init__(
        self, message: str, *, index: int | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.index = index
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The answer."""
        fields = {"error": str(self), "error_type": self.error_type, "code": self.code}
        return fields if self.index is None else fields | {"index": self.index}


class MalformedJson(ServiceError):
    """The body is not JSON: NaN, lone surrogates and other bytes included."""

    status, code, error_type = 400, "malformed_json", "Validation"


class MalformedRequest(ServiceError):
    """What came is not HTTP, or not HTTP that is safe to read."""

    status, code, error_type = 400, "malformed_request", "Validation"

    def __init__(self, message: str = "What was sent is not valid HTTP/1.1.") -> None:
        super().__init__(message, headers={"connection": "close"})


class NoMask(ServiceError):
    """There is nothing to fill in."""

    status, code, error_type = 400, "no_mask", "Validation"

    def __init__(self, *, index: int | None) -> None:
        super().__init__("The text has no [MASK]; write one where a token is wanted.", index=index)


class MaskNotAllowed(ServiceError):
    """A text that is to be scored has a mask, whose token nobody knows."""

    status, code, error_type = 400, "mask_not_allowed", "Validation"

    def __init__(self, *, index: int | None) -> None:
        super().__init__("The text has a [MASK]; only whole texts are scored.", index=index)


class EmptyText(ServiceError):
    """A text without any token."""

    status, code, error_type = 400, "empty_text", "Empty"

    def __init__(self, *, index: int | None) -> None:
        super().__init__("The text is empty.", index=index)


class Unauthorized(ServiceError):
    """The request has no key that is valid here."""

    status, code, error_type = 401, "unauthorized", "Unauthorized"

    def __init__(self) -> None:
        super().__init__(
            "A valid key is wanted: send Authorization: Bearer KEY.",
            headers={"www-authenticate": "Bearer"},
        )


class Forbidden(ServiceError):
    """The request comes from a web page of another origin."""

    status, code, error_type = 403, "forbidden", "Unauthorized"


class NotFound(ServiceError):
    """No such path."""

    status, code, error_type = 404, "not_found", "Validation"


class UnknownModel(ServiceError):
    """The request names a model that is not served."""

    status, code, error_type = 404, "unknown_model", "Validation"

    def __init__(self, *, served: str) -> None:
        super().__init__(f"That model is not served here; there is: {served}.")


class NotOffered(ServiceError):
    """The served model lacks what is asked for."""

    status, code, error_type = 404, "not_offered", "Validation"


class MethodNotAllowed(ServiceError):
    """The path takes another method."""

    status, code, error_type = 405, "method_not_allowed", "Validation"


class RequestTimeout(ServiceError):
    """The request did not arrive in time."""

    status, code, error_type = 408, "request_timeout", "Timeout"

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(
            f"The request did not arrive within {limit_s:g} s.", headers={"connection": "close"}
        )


class ReloadRefused(ServiceError):
    """What was to be loaded is not good; what served before goes on."""

    status, code, error_type = 409, "reload_refused", "Validation"


class UnsupportedMediaType(ServiceError):
    """The body is of a type or in an encoding that is not read here."""

    status, code, error_type = 415, "unsupported_media_type", "Validation"


class TextTooLong(ServiceError):
    """The text has more tokens than the served model takes."""

    status, code, error_type = 413, "text_too_long", "Validation"

    def __init__(self, *, n_tokens: int, limit: int, index: int | None) -> None:
        super().__init__(
            f"The text has {n_tokens} tokens; this model takes at most {limit}. "
            '"truncate": true cuts it.',
            index=index,
        )


class MasksTooFarApart(ServiceError):
    """No window of the model's length holds all masks of the text."""

    status, code, error_type = 413, "text_too_long", "Validation"

    def __init__(self, *, n_tokens: int, limit: int, index: int | None) -> None:
        super().__init__(
            f"The first and the last [MASK] span {n_tokens} tokens; this model takes at most "
            f"{limit}. Send them as separate texts.",
            index=index,
        )


class TooManyTexts(ServiceError):
    """The list is longer than one request may be."""

    status, code, error_type = 413, "too_many_texts", "Validation"

    def __init__(self, *, n_texts: int, limit: int) -> None:
        super().__init__(f"The request has {n_texts} texts; at most {limit} are taken at once.")


class BodyTooLarge(ServiceError):
    """The body has more bytes than are read."""

    status, code, error_type = 413, "body_too_large", "Validation"

    def __init__(self, *, limit: int, n_bytes: int | None = None) -> None:
        has = "more" if n_bytes is None else f"{n_bytes} bytes"
        # What is left of the body is not read, so the connection cannot be used again.
        super().__init__(
            f"The body has {has}; at most {limit} bytes are read. Send it in parts.",
            headers={"connection": "close"},
        )


class TooMuchWork(ServiceError):
    """The request needs more passes through the model than one may ask."""

    status, code, error_type = 413, "too_much_work", "Validation"

    def __init__(self, *, n_passes: int, limit: int) -> None:
        super().__init__(
            f"The request needs {n_passes} passes through the model; at most {limit} are made "
            "at once. Send fewer or shorter texts."
        )


class AnswerTooLarge(ServiceError):
    """The answer would have more bytes than are sent."""

    status, code, error_type = 413, "answer_too_large", "Validation"

    def __init__(self, *, n_bytes: int, limit: int) -> None:
        super().__init__(
            f"The answer would have some {n_bytes} bytes; at most {limit} are sent. "
            "Ask for less of each text, or for fewer or shorter ones."
        )


class InvalidField(ServiceError):
    """A field of the body has the wrong shape or range."""

    status, code, error_type = 422, "invalid_field", "Validation"


class TokenizersDiffer(ServiceError):
    """Two models that are to be compared have different vocabularies."""

    status, code, error_type = 422, "tokenizers_differ", "Validation"

    def __init__(self) -> None:
        super().__init__(
            "These models have different tokenizers, so no token of one is one of the other."
        )


class BackendError(ServiceError):
    """The graph failed on this text."""

    status, code, error_type = 424, "backend_error", "Backend"

    def __init__(self, *, index: int | None = None) -> None:
        super().__init__("The model failed on this text.", index=index)


class NonFinite(ServiceError):
    """The graph answered with NaN, infinity, or a vector of length 0 that has no direction."""

    status, code, error_type = 424, "non_finite", "Backend"

    def __init__(self, *, index: int | None = None) -> None:
        super().__init__("The model has no finite answer to this text.", index=index)


class NoMemory(ServiceError):
    """The device's memory did not suffice for this text, even alone."""

    status, code, error_type = 503, "out_of_memory", "Unhealthy"

    def __init__(self, *, index: int | None = None) -> None:
        super().__init__(
            "The device has no memory left for this text; try again, or send a shorter one.",
            index=index,
        )


class Overloaded(ServiceError):
    """The queue is full."""

    status, code, error_type = 429, "overloaded", "Overloaded"

    def __init__(self, *, retry_after_s: int) -> None:
        super().__init__(
            f"Too much work is waiting; try again in {retry_after_s} s.",
            headers={"retry-after": str(retry_after_s)},
        )


class RateLimited(ServiceError):
    """The key has as many requests open as it may, or has sent as many."""

    status, code, error_type = 429, "rate_limited", "Overloaded"

    def __init__(self, message: str, *, retry_after: float = 1) -> None:
        super().__init__(message, headers={"retry-after": str(math.ceil(retry_after))})


class HeadersTooLarge(ServiceError):
    """The request's line and header fields are too long or too many."""

    status, code, error_type = 431, "headers_too_large", "Validation"

    def __init__(self, *, n_bytes: int, n_fields: int) -> None:
        super().__init__(
            f"A request's head may have {n_bytes} bytes and {n_fields} fields.",
            headers={"connection": "close"},
        )


class Internal(ServiceError):
    """A fault of ours."""

    status, code, error_type = 500, "internal", "Backend"

    def __init__(self) -> None:
        super().__init__("Something went wrong here; the log says what.")


class NotReady(ServiceError):
    """The model is not loaded, or the service is about to stop."""

    status, code, error_type = 503, "not_ready", "Unhealthy"


class Draining(ServiceError):
    """The service is stopping and takes no new work."""

    status, code, error_type = 503, "draining", "Unhealthy"

    def __init__(self) -> None:
        super().__init__("The service is stopping.", headers={"connection": "close"})


class DeadlineExceeded(ServiceError):
    """The answer would come after the client's deadline."""

    status, code, error_type = 503, "deadline_exceeded", "Unhealthy"

    def __init__(self, *, retry_after_s: int) -> None:
        super().__init__(
            "The answer would come later than the request allows.",
            headers={"retry-after": str(retry_after_s)},
        )


class TooManyConnections(ServiceError):
    """More connections are open than the service holds."""

    status, code, error_type = 503, "too_many_connections", "Overloaded"

    def __init__(self, *, limit: int) -> None:
        super().__init__(
            f"{limit} connections are open, the most that are held.",
            headers={"connection": "close", "retry-after": "1"},
        )


Schema = Callable[[list[type[ServiceError]]], dict[str, Any]]


def documented(
    *classes: type[ServiceError], schema: Schema | None = None
) -> dict[int | str, dict[str, Any]]:
    """Failures of an endpoint, as FastAPI's `responses`; `schema` is of another form than ours."""
    write = schema or _schema
    return {
        status: {
            "description": "; ".join(f"`{c.code}`: {c.__doc__}" for c in same),
            "content": {"application/json": {"schema": write(same)}},
        }
        for status, same in _by_status(classes).items()
    }


# What may be answered to any request, also to one that needs no key ...
OPEN: tuple[type[ServiceError], ...] = (
    MalformedRequest,
    RequestTimeout,
    InvalidField,
    HeadersTooLarge,
    Internal,
    TooManyConnections,
)
# ... to one that needs a key ...
ANY = (*OPEN, Unauthorized, RateLimited)
# ... to one with a body ...
WITH_BODY = (
    *ANY,
    MalformedJson,
    UnsupportedMediaType,
    BodyTooLarge,
    Overloaded,
    Draining,
    DeadlineExceeded,
)
# ... and by any endpoint that computes, whatever it computes.
COMMON = (
    *WITH_BODY,
    EmptyText,
    UnknownModel,
    TextTooLong,
    TooManyTexts,
    BackendError,
    NonFinite,
    NoMemory,
)


def _by_status(classes: Iterable[type[ServiceError]]) -> dict[int, list[type[ServiceError]]]:
    groups: dict[int, list[type[ServiceError]]] = {}
    for error in classes:
        groups.setdefault(error.status, []).append(error)
    return dict(sorted(groups.items()))


def _schema(classes: list[type[ServiceError]]) -> dict[str, Any]:
    def enum(values: Iterable[str]) -> dict[str, Any]:
        return {"type": "string", "enum": sorted(set(values))}

    return {
        "type": "object",
        "required": ["error", "error_type", "code"],
        "properties": {
            "error": {"type": "string"},
            "error_type": enum(c.error_type for c in classes),
            "code": enum(c.code for c in classes),
            "index": {"type": "integer", "minimum": 0},
        },
    }
