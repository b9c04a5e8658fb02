"""An fp32 graph with the products of its layers in int8.

Weights are int8 with a scale for each output channel; activations are quantised as they come, with
a scale for each row, which the texts beside it do not change. (fp32 rounds elsewhere in a batch of
another shape, and a code on the edge then falls to the other side.) Processors with AVX2 and no
VNNI add pairs of products in 16 bits, which two factors of 8 bits would overflow: so weights keep
to 7, but where activations are squares, and take 7 bits themselves as they are never negative. The
embedding, the vocabulary head and the Mixer's first product over positions stay fp32.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

CONTRIB = "com.microsoft"  # ONNX Runtime's own operators
LARGEST = {"signed": 63, "squares": 127}  # code of a weight, by what it is multiplied with
SMALLEST_BYTES = 4096  # of a weight that is worth it


class Quantizer:
    """Rewrites a graph in place; weights must be in it."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._weights = {t.name: t for t in model.graph.initializer}
        self._producers = {name: node for node in model.graph.node for name in node.output}
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
        producer = self._producers.get(activation)
        squares = producer is not None and producer.op_type == "Pow"  # of relu, whose power is 2
        kind = "squares" if squares else "signed"
        if self._is_weight(weight):
            quantised, scale = self._constant(weight, kind)
        elif squares and (cut := self._cut(weight)) is not None:
            quantised, scale = cut
        else:
            return False
        codes, largest = self._dynamic(activation, kind)
        out = node.output[0]
        operands = [codes, quantised, "int8.step", scale, f"int8.zero.{kind}"]
        self._add("MatMulIntegerToFloat", operands, f"{out}.of_one", domain=CONTRIB)
        self._add("Mul", [f"{out}.of_one", largest], out)
        return True

    def _is_weight(self, name: str) -> bool:
        tensor = self._weights.get(name)
        return (
            tensor is not None and len(tensor.dims) == 2 and len(tensor.raw_data) >= SMALLEST_BYTES
        )

    def _constant(self, name: str, kind: str) -> tuple[str, str]:
        """A weight [K,N] in int8, and its scales [N]."""
        return self._stored(name, numpy_helper.to_array(self._weights[name]), kind, axis=1)

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
        array = numpy_helper.to_array(self._weights[weight])
        stored, scale = self._stored(weight, array, "squares", axis=0)
        self._add("Slice", [stored, *sliced.input[1:]], f"{sliced.output[0]}.int8")
        self._add("Transpose", [f"{sliced.output[0]}.int8"], f"{name}.int8", perm=[1, 0])
        if axis == 0:
            self._add("Slice", [scale, *sliced.input[1:]], f"{sliced.output[0]}.scale")
            scale = f"{sliced.output[0]}.scale"
        return f"{name}.int8", scale

    def _stored(self, name: str, weight: NDArray[Any], kind: str, *, axis: int) -> tuple[str, str]:
        """New initialisers: int8 codes and a scale for each place along `axis`."""
        codes, scales = f"{name}.int8", f"{name}.scale"
        if codes not in self._made:
            self._made.add(codes)
            largest = np.abs(weight).max(axis=1 - axis).astype(np.float32)
            scale = np.where(largest > 0, largest / LARGEST[kind], 1).astype(np.float32)
            spread = scale[None, :] if axis == 1 else scale[:, None]
            values = np.rint(weight / spread).astype(np.int8)
            self._graph.initializer.append(numpy_helper.from_array(values, codes))
            self._graph.initializer.append(numpy_helper.from_array(scale, scales))
        return codes, scales

    def _dynamic(self, activation: str, kind: str) -> tuple[str, str]:
        """Codes of an activation over its row's largest magnitude, and that magnitude.

        Made once for all products that read it.
        """
        codes, largest = f"{activation}.codes", f"{activation}.largest"
        if codes not in self._made:
            self._constants()
            self._add("Abs", [activation], f"{activation}.abs")
            last = [f"{activation}.abs", "int8.last_axis"]
            self._add("ReduceMax", last, f"{activation}.max", keepdims=1)
            self._add("Max", [f"{activation}.max", "int8.tiny"], largest)
            self._add("Div", [activation, largest], f"{activation}.of_one")
            of_one = [f"{activation}.of_one", "int8.step", f"int8.zero.{kind}"]
            self._add("QuantizeLinear", of_one, codes)
        return codes, largest

    def _constants(self) -> None:
        """What every row of activations needs: of -1 to 1, the steps, and no division by 0."""
        if "int8.step" in self._made:
            return
        constants: dict[str, NDArray[Any]] = {
            "int8.step": np.array(1 / 127, np.float32),
            "int8.zero.signed": np.array(128, np.uint8),
            "int8.zero.squares": np.array(0, np.uint8),
            "int8.tiny": np.array(1e-12, np.float32),
            "int8.last_axis": np.array([-1], np.int64),
        }
        self._made.update(constants)
        self._graph.initializer.extend(
            numpy_helper.from_array(value, name) for name, value in constants.items()
        )

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
    if CONTRIB not in {opset.domain for opset in copy.opset_import}:
        copy.opset_import.append(helper.make_opsetid(CONTRIB, 1))
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
