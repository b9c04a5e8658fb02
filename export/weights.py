"""One safetensors file for all graphs: each tensor once, whatever graphs and forms call it."""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper
from safetensors.numpy import save

from export.artefact import WEIGHTS
from export.graphs import external_tensors, point_to_file
from model.encoder import Encoder

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Place:
    """Where a tensor's bytes lie in the file."""

    offset: int
    length: int


class WeightsFile:
    """Collects the initialisers of graphs by content, under the encoder's names for them.

    The exporter folds transposes into new constants with names of its own; those are found by
    their bytes, so that two graphs that fold the same matrix share it.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._names: dict[str, str] = {}
        self._tensors: dict[str, Array] = {}
        for name, tensor in [*encoder.named_buffers(), *encoder.named_parameters()]:
            array = tensor.detach().numpy()
            for stored in (array, array.astype(np.float16)):  # as `export.halves` may have it
                self._names.setdefault(digest(stored), name)
                self._names.setdefault(digest(stored.T), f"{name}.transposed")

    def add(self, graph: ModelProto) -> None:
        """Take over the large initialisers of a graph."""
        for tensor in external_tensors(graph):
            array = numpy_helper.to_array(tensor)
            self._tensors[self._name(tensor)] = np.ascontiguousarray(array)

    def to_bytes(self) -> bytes:
        """The file."""
        return save(self._tensors, {"format": "onnx-external-data"})

    def redirect(self, graph: ModelProto, file: bytes) -> None:
        """Make a graph that was added read its large initialisers from `file`."""
        places = tensor_places(file)
        for tensor in external_tensors(graph):
            place = places[self._name(tensor)]
            point_to_file(tensor, location=WEIGHTS, offset=place.offset, length=place.length)

    def _name(self, tensor: TensorProto) -> str:
        found = digest(numpy_helper.to_array(tensor))
        return self._names.setdefault(found, f"constant.{len(self._tensors)}")


def save_graphs(encoder: Encoder, graphs: Mapping[str, ModelProto], directory: Path) -> None:
    """Write graphs under their names, and the one file of their weights."""
    weights = WeightsFile(encoder)
    for model in graphs.values():
        weights.add(model)
    data = weights.to_bytes()
    (directory / WEIGHTS).write_bytes(data)
    for name, model in graphs.items():
        weights.redirect(model, data)
        onnx.save(model, directory / name)


def tensor_places(file: bytes) -> Mapping[str, Place]:
    """Where each tensor of a safetensors file lies, from its header."""
    (n_header,) = struct.unpack("<Q", file[:8])
    header = json.loads(file[8 : 8 + n_header])
    start = 8 + n_header
    return {
        name: Place(start + entry["data_offsets"][0], _span(entry["data_offsets"]))
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _span(offsets: list[int]) -> int:
    return offsets[1] - offsets[0]


def digest(array: Array) -> str:
    """Of a tensor's shape, type and content."""
    content = np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(repr((array.shape, array.dtype.str)).encode() + content).hexdigest()
