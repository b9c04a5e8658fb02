"""What request bodies and answers have in common."""

from typing import Annotated, Any

from fastapi import Depends, Header, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from model.tokenizer import Tokenizer
from service.inference import Service as Backend
from service.windows import Window


class Body(BaseModel):
    """A request body; an unknown field is an error, or a misspelt option would be a default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(None, description="Name of the model; the first if left out.")


def _one_or_several(value: Any) -> Any:
    """One sentence where a union would report each of its members."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("wanted", "a text is wanted, or a list of at least one")
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise PydanticCustomError("wanted", "a text is wanted at [{index}]", {"index": index})
    return value


def _texts_or_ids(value: Any) -> Any:
    """The same where token ids may come instead of a text."""
    if not isinstance(value, list) or not value or isinstance(value[0], str):
        return _one_or_several(value)
    return token_ids(value)


def token_ids(value: Any) -> Any:
    """Token ids of one text or of several, or one sentence about what is wrong."""
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("wanted", "token ids are wanted, of one text or of several")
    if type(value[0]) is int:
        if not all(type(token_id) is int for token_id in value):
            raise PydanticCustomError("wanted", "the ids of one text are all whole numbers")
        return value
    for index, ids in enumerate(value):
        if not isinstance(ids, list) or not all(type(token_id) is int for token_id in ids):
            raise PydanticCustomError(
                "wanted", "a list of token ids is wanted at [{index}]", {"index": index}
            )
    return value


Texts = Annotated[
    str | Annotated[list[str], Field(min_length=1)],
    BeforeValidator(_one_or_several),
    Field(description="A text, or several.", examples=["To be, or not to be"]),
]

NotEmpty = Field(min_length=1)
TextsOrIds = Annotated[
    str
    | Annotated[list[str], NotEmpty]
    | Annotated[list[int], NotEmpty]
    | Annotated[list[list[int]], NotEmpty],
    BeforeValidator(_texts_or_ids),
    Field(
        description="A text or several; or the token ids of one or of several, as /tokenize gives "
        "them, which are read as they are.",
        examples=["To be, or not to be"],
    ),
]

Truncate = Annotated[
    bool | None,
    Field(description="Cut what is too long (true) or refuse it (false); by default as set."),
]

Partial = Annotated[
    bool,
    Field(
        description="Answer the good texts of a list, with the errors of the others beside them."
    ),
]


class ItemError(BaseModel):
    """The failure of one text of a list, in the place of its answer."""

    error: str
    error_type: str
    code: str
    index: int


class Token(BaseModel):
    """A token and where it stands in the text."""

    id: int
    text: str
    start: int = Field(description="First code point of the text it stands for.")
    end: int
    special: bool


class Cut(BaseModel):
    """What the model read of a text."""

    n_tokens: int = Field(description="Tokens of the text.")
    kept: tuple[int, int] = Field(description="The tokens that the model read: start and end.")
    truncated: bool


class Timings(BaseModel):
    """Where the time went; of several texts the longest wait and run."""

    tokenize_seconds: float
    queue_seconds: float
    run_seconds: float
    total_seconds: float


def tokens_of(window: Window, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The `Token`s of a window, prefix and suffix included."""
    return [
        {
            "id": token_id,
            "text": window.text[start:end] or tokenizer.token_str(token_id),
            "start": start,
            "end": end,
            "special": token_id in tokenizer.special_ids,
        }
        for token_id, (start, end) in zip(window.ids, window.spans, strict=True)
    ]


async def service_of(request: Request) -> Backend:
    """The service behind the endpoints; a plain function would be called in a thread."""
    service: Backend = request.app.state.service
    return service


Service = Annotated[Backend, Depends(service_of)]

# Read here and kept out of the OpenAPI document, which has no place for this header.
Accept = Annotated[str, Header(include_in_schema=False)]
