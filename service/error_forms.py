"""How failures look to clients of each protocol, and in the OpenAPI document."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from service.errors import ServiceError, documented

Schema = dict[str, Any]


@dataclass(frozen=True)
class ErrorForm:
    """One protocol's form of a failure."""

    body: Callable[[ServiceError], dict[str, Any]]
    schema: Callable[[list[type[ServiceError]]], Schema]

    def documented(self, *classes: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
        """Failures of an endpoint in this form, as FastAPI's `responses`."""
        return documented(*classes, schema=self.schema)


def form_of(path: str) -> ErrorForm | None:
    """The form of a path's protocol; None for ours."""
    return FORMS.get("/".join(path.split("/", 2)[:2]))


def _openai_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 424 else "server_error"


def _openai_body(error: ServiceError) -> dict[str, Any]:
    param = None if error.index is None else f"input[{error.index}]"
    kind = _openai_type(error.status)
    return {"error": {"message": str(error), "type": kind, "param": param, "code": error.code}}


def _openai_schema(classes: list[type[ServiceError]]) -> Schema:
    fields = {
        "message": {"type": "string"},
        "type": _enum(_openai_type(c.status) for c in classes),
        "param": {"type": ["string", "null"]},
        "code": _enum(c.code for c in classes),
    }
    error = {"type": "object", "required": list(fields), "properties": fields}
    return {"type": "object", "required": ["error"], "properties": {"error": error}}


def _open_inference_body(error: ServiceError) -> dict[str, Any]:
    at = "" if error.index is None else f"text[{error.index}]: "
    return {"error": at + str(error)}


def _open_inference_schema(classes: list[type[ServiceError]]) -> Schema:
    return {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def _enum(values: Iterable[str]) -> Schema:
    return {"type": "string", "enum": sorted(set(values))}


OPENAI = ErrorForm(_openai_body, _openai_schema)
OPEN_INFERENCE = ErrorForm(_open_inference_body, _open_inference_schema)

FORMS = {"/v1": OPENAI, "/v2": OPEN_INFERENCE}
