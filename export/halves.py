"""Weights in half precision on disk: graphs read them through a Cast, and compute in float32.

A weights file is half as long. The weights are rounded before the graphs are made, so what the
graphs say is what the rounded encoder says, to float32's last digits. `export.widening` undoes it
where the service loads an artefact; any other ONNX Runtime reads it as it is.
"""

import copy

import numpy as np
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export.graphs import external_tensors
from model.encoder import Encoder


def rounded(encoder: Encoder) -> Encoder:
    """A copy whose parameters are what half precision can hold."""
    rounded = copy.deepcopy(encoder)
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.half().float())
    return rounded


def narrowed(model: ModelProto) -> None:
    """Turn the large float32 initialisers that half precision holds exactly to that and a Cast."""
    casts = []
    for tensor in external_tensors(model):
        if tensor.data_type != TensorProto.FLOAT:
            continue
        wide = numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float16)
        if np.array_equal(narrow.astype(np.float32), wide):
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(narrow, f"{name}.half"))
            casts.append(helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]  # a node stands after those it reads from
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def has_halves(model: ModelProto) -> bool:
    """Whether `narrowed` changed it."""
    return bool(_casts(model))


def expanded(model: ModelProto) -> None:
    """The reverse of `narrowed`, for a graph whose weights are in it."""
    casts = _casts(model)
    for tensor in model.graph.initializer:
        if tensor.name in casts:
            wide = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(wide, casts[tensor.name]))
    nodes = [
        node for node in model.graph.node if not (node.op_type == "Cast" and node.input[0] in casts)
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _casts(model: ModelProto) -> dict[str, str]:
    """{half-precision initialiser: what it is called once it is float32}."""
    halves = {
        tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT16
    }
    return {
        node.input[0]: node.output[0]
        for node in model.graph.node
        if node.op_type == "Cast" and node.input[0] in halves
    }
