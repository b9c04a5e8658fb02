"""What request bodies have in common."""

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.inference import Service as Backend


class Body(BaseModel):
    """A request body; an unknown field is an error, or a misspelt option would be a default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(None, description="Name of the model; the first if left out.")


def _one_or_several(value: Any) -> Any:
    """One sentence where a union would report each of its members."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError("a text is wanted, or a list of at least one")
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise ValueError(f"a text is wanted at [{index}]")
    return value


Texts = Annotated[
    str | Annotated[list[str], Field(min_length=1)],
    BeforeValidator(_one_or_several),
    Field(description="A text, or several.", examples=["To be, or not to be"]),
]

Partial = Annotated[
    bool,
    Field(
        description="Answer the good texts of a list, with the errors of the others beside them."
    ),
]

Truncate = Annotated[
    bool | None,
    Field(description="Cut what is too long (true) or refuse it (false); by default as set."),
]


def service_of(request: Request) -> Backend:
    """The service behind the endpoints."""
    service: Backend = request.app.state.service
    return service


Service = Annotated[Backend, Depends(service_of)]
