"""A checkpoint as a model repository of Triton Inference Server: two models of its ONNX backend.

Source: Triton's documents on the model repository and the model configuration (ModelConfig in
model_config.proto). Texts are tokenised by whoever asks; requests are not batched by the server,
since `mask_positions` name rows of their own batch.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from onnx import ModelProto, TensorProto, ValueInfoProto

from export.artefact import TOKENIZER
from export.graphs import FORMS, export_graph
from export.parity import measure
from export.places import new_directory
from export.weights import save_graphs
from model.checkpoint import Checkpoint

CONFIG, OURS = "config.pbtxt", "# Written by maskwright-export."
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
    """Write the models `NAME-encode` and `NAME-attention`, version 1 of each, into a repository.

    Other models that are there stay.

    Raises:
        FileExistsError: A model of that name is there and `replace` is false, or is not ours.
        export.parity.ParityError: A graph does not say what the encoder says.
    """
    with ExitStack() as both:  # neither is there before both are written
        folders = {
            graph: both.enter_context(
                new_directory(out / f"{name}-{graph}", ours=_is_export, replace=replace)
            )
            for graph in GRAPHS
        }
        for graph, folder in folders.items():
            tell(f"exporting {graph}, {FORM}")
            off = _write(checkpoint, folder, graph, name=f"{name}-{graph}")
            tell(f"within {off:.1e} of torch")


def _write(checkpoint: Checkpoint, folder: Path, graph: str, *, name: str) -> float:
    """Write one model; its largest difference to torch."""
    model = export_graph(checkpoint.encoder, graph, FORMS[FORM])
    (folder / "1").mkdir()
    save_graphs(checkpoint.encoder, {"model.onnx": model}, folder / "1")
    (folder / CONFIG).write_text(configuration(name, model), encoding="utf-8")
    (folder / TOKENIZER).write_text(checkpoint.tokenizer.to_json(), encoding="utf-8")
    parity = measure(folder / "1" / "model.onnx", graph, checkpoint.encoder)
    return max(parity.to_torch.values())


def _is_export(folder: Path) -> bool:
    path = folder / CONFIG
    return path.is_file() and path.read_bytes().startswith(OURS.encode())


def configuration(name: str, model: ModelProto) -> str:
    """A model's ModelConfig in the text form of protocol buffers."""
    lines = [OURS, f'name: "{name}"', 'platform: "onnxruntime_onnx"', "max_batch_size: 0"]
    for field, tensors in (("input", model.graph.input), ("output", model.graph.output)):
        lines += [f"{field} {{ {_described(tensor)} }}" for tensor in tensors]
    return "\n".join([*lines, "instance_group { kind: KIND_AUTO }", ""])


def _described(tensor: ValueInfoProto) -> str:
    of = tensor.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in of.shape.dim]
    return f'name: "{tensor.name}" data_type: {TYPES[of.elem_type]} dims: {dims}'
