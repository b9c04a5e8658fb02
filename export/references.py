"""Where an ONNX graph reads its weights from, found without the onnx package.

The service must not load a graph that points outside its artefact, hands ONNX Runtime the weights
that it holds, and does not install onnx for that. Only the fields of the format that lead to a
tensor are followed. Source: onnx.proto3, IR version 13.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from export.wire import fields, varint

# message: {field number: message it holds}
PATHS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {},
}
KEY, VALUE = 1, 2
GRAPH, INITIALIZER = 7, 5
DIMS, DATA_TYPE, NAME, ENTRY = 1, 2, 8, 13
# Numbers of TensorProto.DataType, and numpy's names for them.
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64",
}  # fmt: skip


@dataclass(frozen=True)
class ExternalTensor:
    """An initialiser whose bytes lie in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


def external_tensors(graph: bytes) -> list[ExternalTensor]:
    """The initialisers of an ONNX model that lie in files, but those of a type without a name.

    Raises:
        ValueError: The bytes are no protobuf message, or an entry is no number.
    """
    found = []
    for number, body in _contents(memoryview(graph)):
        if number == GRAPH:
            tensors = [external_tensor(inner) for n, inner in _contents(body) if n == INITIALIZER]
            found += [tensor for tensor in tensors if tensor is not None]
    return found


def external_tensor(message: memoryview) -> ExternalTensor | None:
    """What a tensor's message says, if its bytes lie in a file and its type has a name."""
    shape: list[int] = []
    name, kind, entries = "", 0, {}
    for field in fields(message):
        number, value = field.number, field.value
        if number == DIMS and isinstance(value, memoryview):
            shape += _packed(value)
        elif number == DIMS and isinstance(value, int):
            shape.append(value)
        elif number == DATA_TYPE and isinstance(value, int):
            kind = value
        elif number == NAME and isinstance(value, memoryview):
            name = bytes(value).decode(errors="replace")
        elif number == ENTRY and isinstance(value, memoryview):
            entry = dict(_contents(value))
            entries[bytes(entry.get(KEY, b""))] = bytes(entry.get(VALUE, b""))
    if b"location" not in entries or kind not in DTYPES:
        return None
    return ExternalTensor(
        name,
        DTYPES[kind],
        tuple(shape),
        entries[b"location"].decode(errors="replace"),
        int(entries.get(b"offset", b"0")),
        int(entries.get(b"length", b"0")),
    )


def _packed(message: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(message):
        number, at = varint(message, at)
        numbers.append(number)
    return numbers


def referenced_files(graph: bytes) -> set[str]:
    """Every `location` of external data in an ONNX model.

    Raises:
        ValueError: The bytes are no protobuf message.
    """
    found: set[str] = set()
    pending = [(memoryview(graph), "model")]  # no recursion: messages may be nested without end
    while pending:
        message, kind = pending.pop()
        if kind == "entry":
            found |= _location(message)
        else:
            paths = PATHS[kind]
            pending += [
                (inner, paths[number]) for number, inner in _contents(message) if number in paths
            ]
    return found


def _location(entry: memoryview) -> set[str]:
    """The file an entry of a tensor's external data names, if it is its location."""
    found = dict(_contents(entry))
    if bytes(found.get(KEY, b"")) != b"location":
        return set()
    return {bytes(found.get(VALUE, b"")).decode(errors="replace")}


def _contents(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(number, content) of the fields that have a length."""
    for field in fields(message):
        if isinstance(field.value, memoryview):
            yield field.number, field.value
