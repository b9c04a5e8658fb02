"""Which files an ONNX graph reads its weights from, found without the onnx package.

The service must not load a graph that points outside its artefact, and does not install onnx for
that. Only the fields of the format that lead to a tensor are followed. Source: onnx.proto3, IR
version 13.
"""

from collections.abc import Iterator

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
                (inner, paths[number]) for number, inner in _fields(message) if number in paths
            ]
    return found


def _location(entry: memoryview) -> set[str]:
    """The file an entry of a tensor's external data names, if it is its location."""
    fields = dict(_fields(entry))
    if bytes(fields.get(KEY, b"")) != b"location":
        return set()
    return {bytes(fields.get(VALUE, b"")).decode(errors="replace")}


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(number, content) of the length-delimited fields."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        if tag >> 32:  # ONNX Runtime's parser would take the low 32 bits for the field
            raise ValueError("a field's number is too large")
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            length, at = _varint(message, at)
            if at + length > end:
                raise ValueError("a field ends past the message")
            yield number, message[at : at + length]
            at += length
        elif wire == 0:
            _, at = _varint(message, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
    if at != end:
        raise ValueError("a field ends past the message")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number ends past the message")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
