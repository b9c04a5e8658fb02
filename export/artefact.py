"""The artefact: a directory with a manifest, one file of weights, and graphs that read it.

The contract between export and service. Imports neither torch nor onnx. Loading reads each file
once, checks it against the manifest on the bytes it holds, and hands on those bytes: nothing can
be swapped after the check.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.references import referenced_files

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
TOKENIZER = "tokenizer.json"

N_TOP = 64  # candidates a mask that `encode` picks itself; a larger top_k reads `mask_logprobs`

# The fields that are read, and what they hold; a manifest may have more.
MANIFEST_FIELDS: dict[str, type] = {
    "name": str,
    "mixer": str,
    "kind": str,
    "config": dict,
    "max_tokens": int,
    "poolings": list,
    "tokenizer": dict,
    "training": dict,
    "variants": list,
    "golden": dict,
    "files": dict,
}
FILE_FIELDS: dict[str, type] = {"sha256": str, "size": int}
VARIANT_FIELDS: dict[str, type] = {
    "name": str,
    "graph": str,
    "form": str,
    "precision": str,
    "providers": list,
    "file": str,
    "files": list,
    "parity": dict,
    "alone_against_batched": float,
    "tolerance": float,
}
JSON_NAMES = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}


class InvalidArtefact(ValueError):
    """A directory is no artefact, or not the one its manifest describes."""


@dataclass(frozen=True)
class Variant:
    """One graph in one form and precision.

    Attributes:
        graph: What it computes: `encode` or `attention`.
        form: `attention-op` (opset 24) or `decomposed` (opset 20).
        providers: Execution providers it was written for.
        file: The graph's file.
        files: Files it reads its weights from.
        parity: Largest difference to torch, of each output, over its largest magnitude or 1.
        alone_against_batched: The same between a text alone and in a batch.
        tolerance: How far the golden outputs may be off on another machine.
    """

    name: str
    graph: str
    form: str
    precision: str
    providers: tuple[str, ...]
    file: str
    files: tuple[str, ...]
    parity: Mapping[str, float]
    alone_against_batched: float
    tolerance: float


@dataclass(frozen=True)
class Artefact:
    """A checked artefact: its manifest, and the bytes of its files by name."""

    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """What requests and metrics call it."""
        return str(self.manifest["name"])

    @property
    def sha256(self) -> str:
        """The manifest's hash of itself, which covers every file's."""
        return str(self.manifest["sha256"])

    @property
    def tokenizer_json(self) -> str:
        """Text of its `tokenizer.json`."""
        return self.files[TOKENIZER].decode()

    @property
    def variants(self) -> list[Variant]:
        """The graphs it offers."""
        return [_variant(fields) for fields in self.manifest["variants"]]


def load_artefact(directory: Path, *, hard_links: bool = False) -> Artefact:
    """Read and check an artefact.

    Args:
        hard_links: Whether a file may have several names. Package installers link files from
            their cache, so bundled artefacts need it.

    Raises:
        InvalidArtefact: With one line that says what is wrong and where.
    """
    manifest = _read_manifest(directory, hard_links=hard_links)
    stated: Mapping[str, Mapping[str, Any]] = manifest["files"]
    found = {path.name for path in directory.iterdir()} - {MANIFEST}
    if missing := set(stated) - found:
        raise InvalidArtefact(f"{directory} lacks {_listed(missing)}")
    if unexpected := found - set(stated):
        raise InvalidArtefact(
            f"{directory} holds what its manifest does not name: {_listed(unexpected)}"
        )
    files = {
        name: _read_checked(directory / name, stated[name], hard_links=hard_links)
        for name in stated
    }
    artefact = Artefact(manifest, files)
    _check_references(directory, artefact)
    return artefact


def write_manifest(directory: Path, fields: Mapping[str, Any]) -> None:
    """Write the manifest over the files that lie in `directory`, with their hashes and its own."""
    files = {
        path.name: {"sha256": _sha256(path.read_bytes()), "size": path.stat().st_size}
        for path in sorted(directory.iterdir())
        if path.name != MANIFEST
    }
    manifest = {"schema_version": SCHEMA_VERSION, **fields, "files": files}
    manifest["sha256"] = _sha256(canonical(manifest))
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8")


def canonical(manifest: Mapping[str, Any]) -> bytes:
    """The bytes a manifest's hash of itself is taken over: sorted, compact, without that hash."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _read_manifest(directory: Path, *, hard_links: bool) -> dict[str, Any]:
    if not directory.is_dir():
        raise InvalidArtefact(f"{directory} is not a directory")
    path = directory / MANIFEST
    if not path.exists():
        raise InvalidArtefact(f"{directory} has no {MANIFEST}")
    data = _read_regular(path, hard_links=hard_links)
    try:
        manifest = json.loads(data)
        own_sha256 = _sha256(canonical(manifest)) if isinstance(manifest, dict) else ""
    except (ValueError, RecursionError) as cause:  # also half a surrogate pair, endless nesting
        raise InvalidArtefact(f"{path} is not JSON: {cause}") from None
    if not isinstance(manifest, dict):
        raise InvalidArtefact(f"{path} is no JSON object")
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidArtefact(f"{path} has schema version {version!r}; this reads {SCHEMA_VERSION}")
    if manifest.get("sha256") != own_sha256:
        raise InvalidArtefact(f"{path} does not match its own sha256")
    _check_shape(path, manifest)
    return manifest


def _check_shape(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise unless the manifest has the fields that its readers read, each of its type."""
    _check_fields(f"{path}", manifest, MANIFEST_FIELDS)
    for name, entry in manifest["files"].items():
        _check_fields(f"{path}: file {name!r}", entry, FILE_FIELDS)
    if TOKENIZER not in manifest["files"]:
        raise InvalidArtefact(f"{path} names no {TOKENIZER}")
    for i, variant in enumerate(manifest["variants"]):
        where = f"{path}: variant {i}"
        _check_fields(where, variant, VARIANT_FIELDS)
        for field in ("providers", "files"):
            if not all(isinstance(name, str) for name in variant[field]):
                raise InvalidArtefact(f"{where}: {field!r} is no array of strings")


def _check_fields(where: str, value: Any, fields: Mapping[str, type]) -> None:
    if not isinstance(value, dict):
        raise InvalidArtefact(f"{where} is no JSON object")
    for name, kind in fields.items():
        if name not in value:
            raise InvalidArtefact(f"{where} lacks {name!r}")
        if not isinstance(value[name], (int, float) if kind is float else kind):
            raise InvalidArtefact(f"{where}: {name!r} is no {JSON_NAMES[kind]}")


def _read_checked(path: Path, stated: Mapping[str, Any], *, hard_links: bool) -> bytes:
    data = _read_regular(path, hard_links=hard_links)
    if len(data) != stated["size"]:
        raise InvalidArtefact(f"{path} has {len(data)} bytes; its manifest says {stated['size']}")
    if (found := _sha256(data)) != stated["sha256"]:
        raise InvalidArtefact(
            f"{path} has sha256 {found[:12]}…; its manifest says {stated['sha256'][:12]}…"
        )
    return data


def _read_regular(path: Path, *, hard_links: bool) -> bytes:
    """The bytes of a regular file that is no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as cause:
        reason = "is a symbolic link" if path.is_symlink() else f"cannot be read: {cause.strerror}"
        raise InvalidArtefact(f"{path} {reason}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArtefact(f"{path} is no regular file")
        if status.st_nlink > 1 and not hard_links:
            raise InvalidArtefact(f"{path} is a hard link ({status.st_nlink} names)")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _check_references(directory: Path, artefact: Artefact) -> None:
    for variant in artefact.variants:
        if variant.file not in artefact.files or not set(variant.files) <= set(artefact.files):
            raise InvalidArtefact(
                f"{directory}: variant {variant.name} names a file that is not there"
            )
        try:
            referenced = referenced_files(artefact.files[variant.file])
        except ValueError as cause:
            raise InvalidArtefact(f"{directory / variant.file} is no ONNX graph: {cause}") from None
        if foreign := referenced - set(variant.files):
            raise InvalidArtefact(
                f"{directory / variant.file} refers to files outside its weights: "
                f"{_listed(foreign)}"
            )


def _variant(fields: Mapping[str, Any]) -> Variant:
    lists = {"providers": tuple(fields["providers"]), "files": tuple(fields["files"])}
    return Variant(**{name: fields[name] for name in VARIANT_FIELDS} | lists)


def _listed(names: Iterable[str]) -> str:
    """File names as Python writes them: a line break in one must not break the message."""
    return ", ".join(map(repr, sorted(names)))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
