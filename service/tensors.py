"""Tensors of the Open Inference Protocol: in JSON, or as bytes behind it.

Source: the protocol's "Required API", version 2, and Triton's binary tensor data extension.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidField

HEADER_LENGTH = "inference-header-content-length"
DATATYPES = {"f": "FP32", "i": "INT64"}

Tensor = NDArray[Any] | Sequence[Sequence[str]]  # numbers, or rows of texts


def with_binary_inputs(body: Any, data: bytes) -> Any:
    """A request's JSON with the tensors that came as bytes put in as `data`.

    Raises:
        InvalidField: The bytes are not those that the JSON announces, or no texts.
    """
    at = 0
    for number, tensor in enumerate(_inputs_of(body)):
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            continue
        if type(size) is not int or not 0 <= size <= len(data) - at:
            raise InvalidField(
                f"inputs[{number}]: binary_data_size is not a number of the {len(data) - at} bytes "
                "that are left."
            )
        if tensor.get("datatype") != "BYTES":
            raise InvalidField(f"inputs[{number}]: only BYTES are taken.")
        tensor["data"] = list(_texts(data[at : at + size], number))
        at += size
    if at < len(data):
        raise InvalidField(f"{len(data) - at} bytes follow that no input's binary_data_size names.")
    return body


def texts_of(tensor: Any, number: int) -> list[str]:
    """The texts of an input tensor of BYTES, nested or flat, in row-major order.

    Raises:
        InvalidField: They are no texts, or not as many as its shape says.
    """
    flat = list(_flat(tensor.data))
    if not all(isinstance(text, str) for text in flat):
        raise InvalidField(f"inputs[{number}].data: BYTES are written as strings.")
    if any(size < 0 for size in tensor.shape) or math.prod(tensor.shape) != len(flat):
        raise InvalidField(f"inputs[{number}]: shape does not fit its {len(flat)} elements.")
    if not flat:
        raise InvalidField(f"inputs[{number}]: at least one text is wanted.")
    return flat


def output_tensor(name: str, value: Tensor, *, binary: bool) -> tuple[dict[str, Any], bytes]:
    """An output tensor's JSON, and its bytes if they go behind it."""
    if isinstance(value, np.ndarray):
        datatype, shape = DATATYPES[value.dtype.kind], list(value.shape)
        raw = value.astype(f"<{value.dtype.kind}{4 if datatype == 'FP32' else 8}").tobytes()
        data: list[Any] = value.ravel().tolist()
    else:
        data = [text for row in value for text in row]
        datatype, shape = "BYTES", [len(value), len(value[0])]
        raw = b"".join(struct.pack("<I", len(t)) + t for t in (text.encode() for text in data))
    described = {"name": name, "datatype": datatype, "shape": shape}
    if binary:
        return described | {"parameters": {"binary_data_size": len(raw)}}, raw
    return described | {"data": data}, b""


def _inputs_of(body: Any) -> Iterator[dict[str, Any]]:
    inputs = body.get("inputs") if isinstance(body, Mapping) else None
    for tensor in inputs if isinstance(inputs, list) else []:
        if isinstance(tensor, dict):  # else the schema refuses it
            yield tensor


def _texts(data: bytes, number: int) -> Iterator[str]:
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise InvalidField(f"inputs[{number}]: its bytes end within a length.")
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if at + size > len(data):
            raise InvalidField(f"inputs[{number}]: its bytes end within a text.")
        try:
            yield data[at : at + size].decode()
        except UnicodeDecodeError:
            raise InvalidField(f"inputs[{number}]: a text is not UTF-8.") from None
        at += size


def _flat(data: list[Any]) -> Iterator[Any]:
    """Elements of nested lists, without recursion: they may be nested deeply."""
    pending = [iter(data)]
    while pending:
        element = next(pending[-1], pending)
        if element is pending:
            pending.pop()
        elif isinstance(element, list):
            pending.append(iter(element))
        else:
            yield element
