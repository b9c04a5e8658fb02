"""Further precisions of an artefact's `encode` graph: made, proven, and written beside the rest.

They are made from the artefact alone: its fp32 graph is the reference, which its export has held
against torch.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, numpy_helper
from safetensors.numpy import load, save

from export.agreement import Agreement, batches_of, compare, proven
from export.arrays import unpacked
from export.artefact import WEIGHTS, Artefact, Variant, load_artefact, write_manifest
from export.card import model_card
from export.graphs import external_tensors, point_to_file
from export.halves import expanded, has_halves, narrowed
from export.parity import differences, open_session, run, session_of
from export.quantize import halved, quantised
from export.subject import encode_variant
from export.weights import digest, tensor_places
from model.tokenizer import Tokenizer

# precision: (form it is made from, providers, what makes it); None: the fp32 graph itself.
PLANS: Mapping[str, tuple[str, tuple[str, ...], Callable[[ModelProto], ModelProto] | None]] = {
    "int8": ("attention-op", ("cpu",), quantised),
    "fp16": ("attention-op", ("cuda",), halved),
    "bf16": ("decomposed", ("openvino",), None),
}
# Another machine's kernels round elsewhere: so many times what was measured on this one.
SLACK = 4.0


def add_variant(
    directory: Path,
    precision: str,
    *,
    text: str,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Add a precision to an artefact, all or nothing.

    Args:
        text: Held-out text that it is compared with fp32 on.
        tell: Is told each step.

    Raises:
        InvalidArtefact: There is none in `directory`.
        export.parity.ParityError: It agrees too little with fp32.
        ValueError: The precision is unknown, there already, or cannot be measured on this machine.
    """
    if precision not in PLANS:
        raise ValueError(f"add={precision!r}; one of: {', '.join(PLANS)}")
    artefact = load_artefact(directory)
    if any(v.graph == "encode" and v.precision == precision for v in artefact.variants):
        raise ValueError(f"{directory} has {precision} already")
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as scratch:
        copy = Path(scratch) / "artefact"
        shutil.copytree(directory, copy)
        _extend(artefact, copy, precision, text=text, tell=tell)
        directory.replace(Path(scratch) / "replaced")  # goes with the scratch directory
        copy.replace(directory)


def agreement(directory: Path, precision: str, *, text: str) -> Agreement:
    """How far an artefact's precision is from its fp32, on a text.

    Raises:
        ValueError: It has no such precision, the text is too short, or this machine does not
            compute in it.
    """
    artefact = load_artefact(directory)
    found, reference = (
        session_of(directory / encode_variant(artefact, name).file, name)
        for name in (precision, "fp32")
    )
    tokenizer = Tokenizer.from_json(artefact.tokenizer_json)
    batches = batches_of(text, tokenizer, max_tokens=artefact.manifest["max_tokens"])
    return compare(found, reference, batches)


def _extend(
    artefact: Artefact, directory: Path, precision: str, *, text: str, tell: Callable[[str], None]
) -> None:
    form, providers, make = PLANS[precision]
    source = next(
        v for v in artefact.variants if (v.graph, v.form, v.precision) == ("encode", form, "fp32")
    )
    file, files = source.file, source.files
    if make is not None:
        tell(f"making encode, {precision}")
        model = onnx.load(directory / source.file)
        halves = has_halves(model)
        expanded(model)
        made = make(model)
        if halves:
            narrowed(made)
        file, files = _write(made, directory, precision)
    tokenizer = Tokenizer.from_json(artefact.tokenizer_json)
    batches = batches_of(text, tokenizer, max_tokens=artefact.manifest["max_tokens"])
    session = session_of(directory / file, precision)
    found = proven(session, open_session(directory / source.file), batches)
    tell(
        f"encode, {precision}: smallest cosine {min(found.cosine.values()):.5f}, likeliest token "
        f"the same at {found.top1:.2%}, {found.alone_against_batched:.1e} alone against batched"
    )
    variant = Variant(
        name=f"encode-{form}-{precision}",
        graph="encode",
        form=form,
        precision=precision,
        providers=providers,
        file=file,
        files=files,
        parity=found.off,
        alone_against_batched=found.alone_against_batched,
        tolerance=SLACK * max(_golden_off(artefact, session), *found.off.values()),
    )
    _rewrite_manifest(artefact, directory, variant, found)


def _write(model: ModelProto, directory: Path, precision: str) -> tuple[str, tuple[str, ...]]:
    """Write a graph; tensors that the fp32 weights have are read from there, others are new."""
    shared = (directory / WEIGHTS).read_bytes()
    places = tensor_places(shared)
    there = {digest(array): places[name] for name, array in load(shared).items()}
    tensors = [(tensor, numpy_helper.to_array(tensor)) for tensor in external_tensors(model)]
    new = {
        tensor.name: np.ascontiguousarray(array)
        for tensor, array in tensors
        if digest(array) not in there
    }
    name, file = f"weights.{precision}.safetensors", f"encode.{precision}.onnx"
    data = save(new, {"format": "onnx-external-data"})
    (directory / name).write_bytes(data)
    added = tensor_places(data)
    for tensor, array in tensors:
        place = added.get(tensor.name) or there[digest(array)]
        location = name if tensor.name in added else WEIGHTS
        point_to_file(tensor, location=location, offset=place.offset, length=place.length)
    onnx.save(model, directory / file)
    return file, (WEIGHTS, name)


def _golden_off(artefact: Artefact, session: ort.InferenceSession) -> float:
    """How far the golden answers are off."""
    golden = artefact.manifest["golden"]
    inputs = {name: unpacked(array) for name, array in golden["inputs"].items()}
    expected = {name: unpacked(array) for name, array in golden["encode"].items()}
    return max(differences(run(session, inputs), expected, inputs).values())


def _rewrite_manifest(
    artefact: Artefact, directory: Path, variant: Variant, found: Agreement
) -> None:
    facts: dict[str, Any] = dict(artefact.manifest)
    facts["variants"] = [*facts["variants"], asdict(variant)]
    agreement = {"cosine": found.cosine, "top1": found.top1}
    facts["agreement"] = facts.get("agreement", {}) | {variant.precision: agreement}
    for field in ("schema_version", "sha256", "files"):
        del facts[field]  # they are written anew
    (directory / "README.md").write_text(model_card(facts), encoding="utf-8")
    write_manifest(directory, facts)
