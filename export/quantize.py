"""An fp32 graph with the products of its layers in int8.

Dynamic quantisation: weights are int8 with a scale each output channel, activations are quantised
as they come, with one scale for the whole batch. Weights keep to 7 bits: processors with AVX2 and
no VNNI add pairs of products in 16 bits, which 8 would overflow. The embedding and the vocabulary
head stay fp32.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

LARGEST = 63  # of a weight
SMALLEST_BYTES = 4096  # of a weight that is worth it


class Quantizer:
    """Rewrites a graph in place; weights must be in it."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._weights = {t.name: t for t in model.graph.initializer}
        self._producers = {name: node for node in model.graph.node for name in node.output}
        self._quantised: dict[str, tuple[str, str, str]] = {}  # of activations, by name
        self._nodes: list[NodeProto] = []
        self._made: set[str] = set()

    def run(self) -> int:
        """Rewrite every product with a weight, whole or cut to a length; how many there were."""
        n_rewritten = 0
        for node in list(self._graph.node):
            if node.op_type == "MatMul" and self._rewrite(node):
                n_rewritten += 1
            else:
                self._nodes.append(node)
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        self._drop_unused()
        return n_rewritten

    def _rewrite(self, node: NodeProto) -> bool:
        activation, weight = node.input
        if self._is_weight(weight):
            quantised, scale = self._constant(weight)
        elif (cut := self._cut(weight)) is not None:
            quantised, scale = cut
        else:
            return False
        codes, step, zero = self._dynamic(activation)
        out = node.output[0]
        self._add("MatMulInteger", [codes, quantised, zero], f"{out}.int32")
        self._add("Cast", [f"{out}.int32"], f"{out}.whole", to=TensorProto.FLOAT)
        self._add("Mul", [step, scale], f"{out}.scale")
        self._add("Mul", [f"{out}.whole", f"{out}.scale"], out)
        return True

    def _is_weight(self, name: str) -> bool:
        tensor = self._weights.get(name)
        return (
            tensor is not None and len(tensor.dims) == 2 and len(tensor.raw_data) >= SMALLEST_BYTES
        )

    def _constant(self, name: str) -> tuple[str, str]:
        """A weight [K,N] in int8, and its scales [N]."""
        return self._stored(name, numpy_helper.to_array(self._weights[name]), axis=1)

    def _cut(self, name: str) -> tuple[str, str] | None:
        """The same of a Mixer's token weights: `Transpose(Slice(weight))`, cut to the length."""
        turned = self._producers.get(name)
        sliced = self._producers.get(turned.input[0]) if turned is not None else None
        if turned is None or sliced is None:
            return None
        if (turned.op_type, sliced.op_type) != ("Transpose", "Slice"):
            return None
        weight = sliced.input[0]
        if not self._is_weight(weight):
            return None
        axis = int(numpy_helper.to_array(self._weights[sliced.input[3]])[0])
        # Rows become columns: a scale for each row, of which the cut rows keep theirs.
        stored, scale = self._stored(weight, numpy_helper.to_array(self._weights[weight]), axis=0)
        self._add("Slice", [stored, *sliced.input[1:]], f"{sliced.output[0]}.int8")
        self._add("Transpose", [f"{sliced.output[0]}.int8"], f"{name}.int8", perm=[1, 0])
        if axis == 0:
            self._add("Slice", [scale, *sliced.input[1:]], f"{sliced.output[0]}.scale")
            scale = f"{sliced.output[0]}.scale"
        return f"{name}.int8", scale

    def _stored(self, name: str, weight: NDArray[Any], *, axis: int) -> tuple[str, str]:
        """New initialisers: int8 codes and a scale for each place along `axis`."""
        codes, scales = f"{name}.int8", f"{name}.scale"
        if codes not in self._made:
            self._made.add(codes)
            largest = np.abs(weight).max(axis=1 - axis).astype(np.float32)
            scale = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
            spread = scale[None, :] if axis == 1 else scale[:, None]
            values = np.rint(weight / spread).astype(np.int8)
            self._graph.initializer.append(numpy_helper.from_array(values, codes))
            self._graph.initializer.append(numpy_helper.from_array(scale, scales))
        return codes, scales

    def _dynamic(self, activation: str) -> tuple[str, str, str]:
        """Codes, step and zero of an activation; quantised once for all products that read it."""
        if activation not in self._quantised:
            names = tuple(f"{activation}.{part}" for part in ("codes", "step", "zero"))
            self._nodes.append(helper.make_node("DynamicQuantizeLinear", [activation], names))
            self._quantised[activation] = (names[0], names[1], names[2])
        return self._quantised[activation]

    def _add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> None:
        if output not in self._made:
            self._made.add(output)
            self._nodes.append(helper.make_node(op, inputs, [output], **attributes))

    def _drop_unused(self) -> None:
        """Nodes and weights that nothing reads any more."""
        graph, outputs = self._graph, {output.name for output in self._graph.output}
        while True:
            read = outputs | {name for node in graph.node for name in node.input}
            dead = [node for node in graph.node if not read.intersection(node.output)]
            if not dead:
                break
            for node in dead:
                graph.node.remove(node)
        kept = [tensor for tensor in graph.initializer if tensor.name in read]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        del graph.value_info[:]  # shapes of what is no more


def quantised(model: ModelProto) -> ModelProto:
    """A copy of a graph with int8 products; its weights must be inside.

    Raises:
        ValueError: There is nothing to quantise.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    if not Quantizer(copy).run():
        raise ValueError("the graph has no products with weights")
    return copy


def halved(model: ModelProto) -> ModelProto:
    """A copy of a graph in fp16 with fp32 inputs and outputs; norms and the softmax stay fp32.

    A norm's sum of squares, and a sum over the vocabulary, are beyond what fp16 holds.
    """
    from onnxruntime.transformers.float16 import (  # it is slow to import
        DEFAULT_OP_BLOCK_LIST,
        convert_float_to_float16,
    )

    copy = ModelProto()
    copy.CopyFrom(model)
    kept = [*DEFAULT_OP_BLOCK_LIST, "RMSNormalization", "LayerNormalization", "LogSoftmax", "TopK"]
    converted: ModelProto = convert_float_to_float16(
        copy, keep_io_types=True, disable_shape_infer=True, op_block_list=kept
    )
    del converted.graph.value_info[:]  # it calls weights fp16 that stay fp32
    return converted
