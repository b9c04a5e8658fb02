"""A checkpoint as a model repository of Triton Inference Server: two models of its ONNX backend.

Source: Triton's documents on the model repository and the model configuration (ModelConfig in
model_config.proto). Texts are tokenised by whoever asks; requests are not batched by the server,
since `mask_positions` name rows of their own batch.
"""

from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from export.artefact import TOKENIZER, WEIGHTS
from export.graphs import FORMS, export_graph
from export.parity import measure
from export.places import new_directory
from export.weights import WeightsFile
from model.checkpoint import Checkpoint

GRAPHS, FORM = ("encode", "attention"), "decomposed"
TYPES: dict[int, str] = {TensorProto.INT64: "TYPE_INT64", TensorProto.FLOAT: "TYPE_FP32"}


def write_repository(
    checkpoint: Checkpoint,
    out: Path,
    *,
    name: str,
    replace: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Write a repository with the models `NAME-encode` and `NAME-attention`, version 1 of each.

    Raises:
        FileExistsError: `out` exists and `replace` is false, or has no such models.
        export.parity.ParityError: A graph does not say what the encoder says.
    """
    mark = f"{name}-{GRAPHS[0]}/config.pbtxt"
    with new_directory(out, mark=mark, replace=replace) as directory:
        for graph in GRAPHS:
            tell(f"exporting {graph}, {FORM}")
            model = export_graph(checkpoint.encoder, graph, FORMS[FORM])
            folder = directory / f"{name}-{graph}"
            (folder / "1").mkdir(parents=True)
            weights = WeightsFile(checkpoint.encoder)
            weights.add(model)
            data = weights.to_bytes()
            (folder / "1" / WEIGHTS).write_bytes(data)
            weights.redirect(model, data)
            onnx.save(model, folder / "1" / "model.onnx")
            parity = measure(folder / "1" / "model.onnx", graph, checkpoint.encoder)
            tell(f"within {max(parity.to_torch.values()):.1e} of torch")
            (folder / "config.pbtxt").write_text(
                configuration(folder.name, model), encoding="utf-8"
            )
            tokenizer = checkpoint.tokenizer.to_json()
            (folder / TOKENIZER).write_text(tokenizer, encoding="utf-8")


def configuration(name: str, model: ModelProto) -> str:
    """A model's ModelConfig in the text form of protocol buffers."""
    lines = [f'name: "{name}"', 'platform: "onnxruntime_onnx"', "max_batch_size: 0"]
    for field, tensors in (("input", model.graph.input), ("output", model.graph.output)):
        lines += [f"{field} {{ {_described(tensor)} }}" for tensor in tensors]
    return "\n".join([*lines, "instance_group { kind: KIND_AUTO }", ""])


def _described(tensor: ValueInfoProto) -> str:
    of = tensor.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in of.shape.dim]
    return f'name: "{tensor.name}" data_type: {TYPES[of.elem_type]} dims: {dims}'
