"""A checkpoint to an artefact: graphs, weights, proof, golden answers, card and manifest."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from export.arrays import packed
from export.artefact import MANIFEST, TOKENIZER, WEIGHTS, Variant, write_manifest
from export.card import model_card
from export.graphs import FORMS, export_graph
from export.halves import narrowed, rounded
from export.parity import FP32_BOUND, Arrays, measure, torch_outputs
from export.places import new_directory
from export.weights import save_graphs
from model.checkpoint import Checkpoint
from model.config import check_choice, to_json
from model.encoder import Encoder
from model.mixers import MIXERS
from model.pooling import POOLINGS
from model.tokenizer import MASK

# (graph, form, file). The service's CPU and CUDA providers take attention-op, OpenVINO decomposed.
PLAN = (
    ("encode", "attention-op", "encode.onnx"),
    ("encode", "decomposed", "encode.decomposed.onnx"),
    ("attention", "decomposed", "attention.onnx"),
)
PROVIDERS = {"attention-op": ("cpu", "cuda"), "decomposed": ("cpu", "cuda", "openvino")}

STORED = ("fp32", "fp16")

# Another machine's kernels add in another order: ten times what parity allows on this one, or, of a
# sharp softmax, what it found there.
HEADROOM = 10.0


def build_artefact(
    checkpoint: Checkpoint,
    out: Path,
    *,
    name: str,
    weights: str = "fp32",
    prompts: Mapping[str, str] | None = None,
    notes: str = "",
    replace: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Write the artefact of a checkpoint to `out`, all or nothing.

    Args:
        name: What requests and metrics call it.
        weights: A name in `STORED`: how they lie on disk.
        prompts: Texts that the encoder was trained to see before others, by their names.
        notes: Markdown for the card, after what is known of the training.
        replace: Whether an artefact that is there already may be replaced.
        tell: Is told each step.

    Raises:
        FileExistsError: `out` exists and `replace` is false, or it is no artefact.
        ValueError: A weight is not finite, or `weights` is unknown.
        export.parity.ParityError: A graph does not say what the encoder says.
    """
    check_choice("weights", weights, STORED)
    _check_finite(checkpoint.encoder, "training diverged; take an earlier checkpoint")
    if weights == "fp16":
        checkpoint = dataclasses.replace(checkpoint, encoder=rounded(checkpoint.encoder))
        _check_finite(checkpoint.encoder, "it is beyond what fp16 can hold; export fp32 weights")
    fields = _facts(checkpoint, name=name) | {"weights": weights}
    fields |= {"prompts": dict(prompts)} if prompts else {}
    fields |= {"notes": notes} if notes else {}
    with new_directory(out, ours=_is_artefact, replace=replace) as directory:
        _fill(checkpoint, directory, fields, tell=tell)


def _fill(
    checkpoint: Checkpoint,
    directory: Path,
    fields: dict[str, Any],
    *,
    tell: Callable[[str], None],
) -> None:
    encoder = checkpoint.encoder
    _write_graphs(encoder, directory, halves=fields["weights"] == "fp16", tell=tell)
    variants = [asdict(_proven(encoder, directory, *plan, tell=tell)) for plan in PLAN]
    fields = fields | {"variants": variants, "golden": _golden(encoder)}
    (directory / TOKENIZER).write_text(checkpoint.tokenizer.to_json(), encoding="utf-8")
    config = json.dumps(to_json(encoder.config), indent=2) + "\n"
    (directory / "config.json").write_text(config, encoding="utf-8")
    (directory / "README.md").write_text(model_card(fields), encoding="utf-8")
    write_manifest(directory, fields)


def _is_artefact(directory: Path) -> bool:
    return (directory / MANIFEST).is_file()


def _check_finite(encoder: Encoder, reason: str) -> None:
    for name, tensor in encoder.state_dict().items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not finite: {reason}")


def _write_graphs(
    encoder: Encoder, directory: Path, *, halves: bool, tell: Callable[[str], None]
) -> None:
    graphs = {}
    for graph, form, file in PLAN:
        tell(f"exporting {graph}, {form}")
        graphs[file] = export_graph(encoder, graph, FORMS[form])
        if halves:
            narrowed(graphs[file])
    save_graphs(encoder, graphs, directory)


def _proven(
    encoder: Encoder,
    directory: Path,
    graph: str,
    form: str,
    file: str,
    *,
    tell: Callable[[str], None],
) -> Variant:
    parity = measure(directory / file, graph, encoder)
    worst = max(parity.to_torch.values())
    tell(
        f"{graph}, {form}: within {worst:.1e} of torch, "
        f"{parity.alone_against_batched:.1e} alone against batched"
    )
    return Variant(
        name=f"{graph}-{form}-fp32",
        graph=graph,
        form=form,
        precision="fp32",
        providers=PROVIDERS[form],
        file=file,
        files=(WEIGHTS,),
        parity=parity.to_torch,
        alone_against_batched=parity.alone_against_batched,
        tolerance=HEADROOM * max(FP32_BOUND, worst, parity.alone_against_batched),
    )


def _facts(checkpoint: Checkpoint, *, name: str) -> dict[str, Any]:
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    return {
        "name": name,
        "mixer": config.mixer,
        "kind": MIXERS[config.mixer].kind,
        "config": to_json(config),
        "max_tokens": config.max_tokens,
        "poolings": list(POOLINGS),
        "tokenizer": {
            "kind": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "mask_token": MASK,
            "mask_id": tokenizer.mask_id,
        },
        "training": checkpoint.summary,
        "text_licence": checkpoint.summary.get("corpus", {}).get("licence", "not stated"),
    }


def _golden(encoder: Encoder) -> dict[str, Any]:
    """Inputs of two short rows and what each graph must say to them."""
    n_tokens = min(6, encoder.config.max_tokens)
    ids = np.random.default_rng(1).integers(0, encoder.config.vocab_size, (2, n_tokens))
    inputs: Arrays = {
        "input_ids": ids.astype(np.int64),
        "lengths": np.array([n_tokens, max(1, n_tokens - 2)], np.int64),
        "mask_positions": np.array([[0, n_tokens // 2], [1, 0]], np.int64),
    }
    encode = torch_outputs(encoder, "encode", inputs)
    attention = torch_outputs(encoder, "attention", inputs)
    kept = {key: encode[key] for key in encode if key.startswith(("pooled_", "mask_"))}
    return {
        "inputs": {key: packed(array) for key, array in inputs.items()},
        "encode": {key: packed(array) for key, array in kept.items()},
        "attention": {key: packed(array) for key, array in attention.items()},
    }
