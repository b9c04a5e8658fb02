"""Weights that lie in half precision on disk, made float32 when an artefact is loaded.

A graph that computes in float32 reads such a weight through a Cast. ONNX Runtime's CPU provider
runs the Cast in every call; so the weight becomes float32 here, once for all sessions, and the
Cast, from a type to itself, is dropped by the runtime. The onnx package is not needed, as for the
rest of loading.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from export.artefact import Artefact, InvalidArtefact, Variant
from export.references import (
    DATA_TYPE,
    DIMS,
    ENTRY,
    GRAPH,
    INITIALIZER,
    KEY,
    NAME,
    VALUE,
    ExternalTensor,
    external_tensor,
    external_tensors,
)
from export.wire import Field, encoded, fields

WIDE = "weights.wide"  # a file of the artefact in memory
FLOAT, EXTERNAL = 1, 1  # of TensorProto's DataType and DataLocation
LOCATION = 14

Key = tuple[str, int, int]  # file, offset, length


def widened(artefact: Artefact) -> Artefact:
    """The artefact, its graphs of other precisions than fp16 without a weight in half precision.

    Raises:
        InvalidArtefact: A tensor is not where its graph says.
    """
    narrow = {variant.name: _narrow(artefact, variant) for variant in artefact.variants}
    if not any(narrow.values()):
        return artefact
    tensors = list(dict.fromkeys(_key(t) for of in narrow.values() for t in of))
    data, places = bytearray(), {}
    for key in tensors:
        places[key] = (len(data), 2 * key[2])
        data += _wide(artefact, *key)
    files, variants = {**artefact.files, WIDE: bytes(data)}, []
    for variant in artefact.variants:
        if narrow[variant.name]:
            files[variant.file] = _rewritten(artefact.files[variant.file], places)
            variant = replace(variant, files=(*variant.files, WIDE))
        variants.append(asdict(variant))
    return Artefact({**artefact.manifest, "variants": variants}, files)


def _key(tensor: ExternalTensor) -> Key:
    return tensor.file, tensor.offset, tensor.length


def _narrow(artefact: Artefact, variant: Variant) -> list[ExternalTensor]:
    if variant.precision == "fp16":
        return []
    try:
        tensors = external_tensors(artefact.files[variant.file])
    except ValueError as cause:
        raise InvalidArtefact(f"{artefact.name}: {variant.file} cannot be read: {cause}") from cause
    return [tensor for tensor in tensors if tensor.dtype == "float16"]


def _wide(artefact: Artefact, file: str, offset: int, length: int) -> bytes:
    part = artefact.files[file][offset : offset + length]
    if len(part) != length or length % 2:
        raise InvalidArtefact(f"{artefact.name}: {length} bytes from {offset} are not in {file}")
    return np.frombuffer(part, np.float16).astype(np.float32).tobytes()


def _rewritten(graph: bytes, places: Mapping[Key, tuple[int, int]]) -> bytes:
    """The graph's bytes, those tensors in `WIDE`."""
    written = []
    for field in fields(memoryview(graph)):
        if field.number == GRAPH and isinstance(field.value, memoryview):
            inner = [_inner(each, places) for each in fields(field.value)]
            written.append(encoded(GRAPH, b"".join(inner)))
        else:
            written.append(bytes(field.raw))
    return b"".join(written)


def _inner(field: Field, places: Mapping[Key, tuple[int, int]]) -> bytes:
    """A field of the graph; anew, if it is one of the tensors."""
    if field.number == INITIALIZER and isinstance(field.value, memoryview):
        tensor = external_tensor(field.value)
        if tensor is not None and tensor.dtype == "float16":
            return encoded(INITIALIZER, _tensor(tensor, *places[_key(tensor)]))
    return bytes(field.raw)


def _tensor(tensor: ExternalTensor, offset: int, length: int) -> bytes:
    entries = {"location": WIDE, "offset": str(offset), "length": str(length)}
    return b"".join(
        [
            *(encoded(DIMS, n) for n in tensor.shape),
            encoded(DATA_TYPE, FLOAT),
            encoded(NAME, tensor.name.encode()),
            *(
                encoded(ENTRY, encoded(KEY, key.encode()) + encoded(VALUE, value.encode()))
                for key, value in entries.items()
            ),
            encoded(LOCATION, EXTERNAL),
        ]
    )
