"""Protocol buffers as bytes: the fields of a message, and a field as bytes.

Source: the encoding's description at protobuf.dev, wire types 0, 1, 2 and 5.
"""

from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED_64, DELIMITED, FIXED_32 = 0, 1, 2, 5
WIDTHS = {FIXED_64: 8, FIXED_32: 4}  # bytes


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        value: Its number, or its content; none of one of fixed width.
        raw: All its bytes, tag included.
    """

    number: int
    value: int | memoryview | None
    raw: memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a message, in their order.

    Raises:
        ValueError: The bytes are no protobuf message.
    """
    at, end = 0, len(message)
    while at < end:
        start = at
        tag, at = varint(message, at)
        if tag >> 32:  # ONNX Runtime's parser would take the low 32 bits for the field
            raise ValueError("a field's number is too large")
        number, wire = tag >> 3, tag & 7
        value: int | memoryview | None = None
        if wire == DELIMITED:
            length, at = varint(message, at)
            value, at = message[at : at + length], at + length
        elif wire == VARINT:
            value, at = varint(message, at)
        elif wire in WIDTHS:
            at += WIDTHS[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if at > end:
            raise ValueError("a field ends past the message")
        yield Field(number, value, message[start:at])


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number ends past the message")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def encoded(number: int, value: int | bytes) -> bytes:
    """A field of a number that is not negative, or of bytes."""
    if isinstance(value, int):
        return _varint_bytes(number << 3 | VARINT) + _varint_bytes(value)
    return _varint_bytes(number << 3 | DELIMITED) + _varint_bytes(len(value)) + value


def _varint_bytes(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
