"""Loading an artefact: what is as its manifest says loads, anything else is refused in one line."""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from export.artefact import (
    FILE_FIELDS,
    MANIFEST_FIELDS,
    VARIANT_FIELDS,
    InvalidArtefact,
    Variant,
    canonical,
    load_artefact,
    write_manifest,
)
from export.weights import tensor_places

VARIANT = {
    "name": "encode-decomposed-fp32",
    "graph": "encode",
    "form": "decomposed",
    "precision": "fp32",
    "providers": ["cpu"],
    "file": "encode.onnx",
    "files": ["weights.safetensors"],
    "parity": {"last_hidden": 1e-7},
    "alone_against_batched": 0,
    "tolerance": 1e-4,
}
FIELDS = {
    "name": "by-hand",
    "mixer": "mhsa",
    "kind": "attention",
    "config": {},
    "max_tokens": 8,
    "poolings": ["mean"],
    "tokenizer": {},
    "training": {},
    "golden": {},
    "variants": [VARIANT],
}
FILES = ("README.md", "encode.onnx", "tokenizer.json", "weights.safetensors")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An artefact made by hand, with one graph that adds a weight to its input."""
    directory = tmp_path / "by-hand"
    directory.mkdir()
    save_file({"w": np.arange(16, dtype=np.float32)}, directory / "weights.safetensors")
    (directory / "tokenizer.json").write_text('{"a tokenizer": "of ä and 𝄞"}', encoding="utf-8")
    (directory / "README.md").write_text("# by-hand\n", encoding="utf-8")
    write_graph(directory, location="weights.safetensors")
    write_manifest(directory, FIELDS)
    return directory


def write_graph(directory: Path, *, location: str) -> None:
    """Write `encode.onnx` with its weight in the file `location`, and the manifest over it."""
    place = tensor_places((directory / "weights.safetensors").read_bytes())["w"]
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[16], raw_data=b"")
    onnx.external_data_helper.set_external_data(weight, location, place.offset, place.length)
    weight.data_location = TensorProto.EXTERNAL
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [16]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    (directory / "encode.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    write_manifest(directory, FIELDS)


def edit_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and give it the hash of what it then says."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    manifest["sha256"] = hashlib.sha256(canonical(manifest)).hexdigest()
    path.write_text(json.dumps(manifest), encoding="utf-8")


def refusal(directory: Path, *, hard_links: bool = False) -> str:
    """What follows the directory's name in the one line of its refusal."""
    with pytest.raises(InvalidArtefact) as caught:
        load_artefact(directory, hard_links=hard_links)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(str(directory))
    return message.removeprefix(str(directory))


def replace_by_link(path: Path) -> None:
    """Move a file away and leave a symbolic link to it, so that only the link is wrong."""
    target = path.parent.parent / f"moved-{path.name}"
    path.rename(target)
    path.symlink_to(target)


def test_an_exported_artefact_loads_with_the_bytes_of_its_files(artefact: Path) -> None:
    loaded = load_artefact(artefact)
    on_disk = {path.name: path.read_bytes() for path in artefact.iterdir()}
    assert loaded.files == {name: on_disk[name] for name in on_disk if name != "manifest.json"}
    assert loaded.manifest == json.loads(on_disk["manifest.json"])
    assert loaded.name == artefact.name


def test_an_artefact_gives_its_variants_tokenizer_and_hash(directory: Path) -> None:
    loaded = load_artefact(directory)
    lists = {"providers": ("cpu",), "files": ("weights.safetensors",)}
    assert loaded.variants == [Variant(**(VARIANT | lists))]
    assert loaded.tokenizer_json == '{"a tokenizer": "of ä and 𝄞"}'
    assert loaded.sha256 == loaded.manifest["sha256"]


def test_the_manifests_hash_is_over_its_sorted_compact_json_without_itself(directory: Path) -> None:
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    stated = manifest.pop("sha256")
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert stated == hashlib.sha256(text.encode()).hexdigest()


def test_a_manifest_in_another_layout_is_the_same_manifest(directory: Path) -> None:
    edit_manifest(directory, lambda manifest: None)
    assert load_artefact(directory).name == "by-hand"


def test_a_path_that_is_no_directory_is_refused(directory: Path) -> None:
    assert refusal(directory / "README.md") == " is not a directory"
    assert refusal(directory / "nowhere") == " is not a directory"


def test_a_directory_without_a_manifest_is_refused(directory: Path) -> None:
    (directory / "manifest.json").unlink()
    assert refusal(directory) == " has no manifest.json"


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b'{"a": 1}}', b"[" * 100_000, b'{"name": "\\ud800"}'],
    ids=["empty", "unfinished", "not UTF-8", "two", "nested too deep", "half a surrogate pair"],
)
def test_a_manifest_that_is_not_json_is_refused(directory: Path, text: bytes) -> None:
    (directory / "manifest.json").write_bytes(text)
    assert refusal(directory).startswith("/manifest.json is not JSON: ")


@pytest.mark.parametrize("text", ["[]", "null", "1", '"manifest"'])
def test_a_manifest_that_is_no_object_is_refused(directory: Path, text: str) -> None:
    (directory / "manifest.json").write_text(text, encoding="utf-8")
    assert refusal(directory) == "/manifest.json is no JSON object"


def test_a_manifest_of_another_schema_version_is_refused(directory: Path) -> None:
    edit_manifest(directory, lambda manifest: manifest.update(schema_version=2))
    assert refusal(directory) == "/manifest.json has schema version 2; this reads 1"
    edit_manifest(directory, lambda manifest: manifest.pop("schema_version"))
    assert refusal(directory) == "/manifest.json has schema version None; this reads 1"


def test_a_manifest_that_was_edited_is_refused(directory: Path) -> None:
    path = directory / "manifest.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"max_tokens": 8', '"max_tokens": 9'), encoding="utf-8")
    assert refusal(directory) == "/manifest.json does not match its own sha256"


def test_a_flipped_bit_in_the_manifest_is_refused_or_alters_nothing_it_says(
    directory: Path,
) -> None:
    path = directory / "manifest.json"
    text, before = path.read_bytes(), load_artefact(directory).manifest
    n_refused = 0
    for i, offset in enumerate(range(0, len(text), 7)):
        path.write_bytes(flipped(text, offset, bit=i % 8))
        try:
            assert load_artefact(directory).manifest == before  # 1e-05 and 1E-05 are the same
        except InvalidArtefact:
            n_refused += 1
    assert n_refused > 100


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_a_file_is_refused(directory: Path, name: str) -> None:
    path = directory / name
    data = path.read_bytes()
    offsets = {0, 1, len(data) // 3, len(data) // 2, len(data) - 1}
    for offset in offsets:
        spoilt = flipped(data, offset, bit=offset % 8)
        path.write_bytes(spoilt)
        found, stated = (hashlib.sha256(each).hexdigest()[:12] for each in (spoilt, data))
        assert refusal(directory) == f"/{name} has sha256 {found}…; its manifest says {stated}…"


def flipped(data: bytes, offset: int, *, bit: int) -> bytes:
    """`data` with one bit changed."""
    return data[:offset] + bytes([data[offset] ^ 1 << bit]) + data[offset + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(directory: Path, name: str) -> None:
    (directory / name).unlink()
    assert refusal(directory) == f" lacks '{name}'"


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "two\nlines"])
def test_a_file_that_the_manifest_does_not_name_is_refused(directory: Path, name: str) -> None:
    (directory / name).touch()
    assert refusal(directory) == f" holds what its manifest does not name: {name!r}"


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused(directory: Path, name: str) -> None:
    data = (directory / name).read_bytes()
    (directory / name).write_bytes(data[:-1])
    reason = f"/{name} has {len(data) - 1} bytes; its manifest says {len(data)}"
    assert refusal(directory) == reason


@pytest.mark.parametrize("hard_links", [False, True])
@pytest.mark.parametrize("name", ["manifest.json", *FILES])
def test_a_symbolic_link_is_refused_even_to_the_very_file(
    directory: Path, name: str, hard_links: bool
) -> None:
    replace_by_link(directory / name)
    assert refusal(directory, hard_links=hard_links) == f"/{name} is a symbolic link"


@pytest.mark.parametrize("name", ["manifest.json", *FILES])
def test_a_hard_link_is_refused_unless_the_caller_allows_it(directory: Path, name: str) -> None:
    (directory.parent / "another name").hardlink_to(directory / name)
    assert refusal(directory) == f"/{name} is a hard link (2 names)"
    assert load_artefact(directory, hard_links=True).name == "by-hand"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["manifest.json", *FILES])
def test_a_pipe_or_directory_in_place_of_a_file_is_refused_without_waiting(
    directory: Path, name: str, make: Callable[[Path], None]
) -> None:
    (directory / name).unlink()
    make(directory / name)
    assert refusal(directory) == f"/{name} is no regular file"


def test_a_file_that_cannot_be_opened_is_refused_with_the_systems_reason(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "README.md").unlink()
    monkeypatch.chdir(directory)  # a socket's whole path may have some 100 characters only
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("README.md")
        assert refusal(directory).startswith("/README.md cannot be read: ")


@pytest.mark.parametrize(
    "location",
    ["../weights.safetensors", "./weights.safetensors", "/etc/hostname", "other.bin", "README.md"],
)
def test_a_graph_that_reads_a_file_other_than_its_weights_is_refused(
    directory: Path, location: str
) -> None:
    write_graph(directory, location=location)
    reason = f"/encode.onnx refers to files outside its weights: '{location}'"
    assert refusal(directory) == reason


def test_a_graph_that_is_no_protobuf_message_is_refused(directory: Path) -> None:
    (directory / "encode.onnx").write_bytes(b"\x0f" * 10)
    write_manifest(directory, FIELDS)
    assert refusal(directory).startswith("/encode.onnx is no ONNX graph: ")


@pytest.mark.parametrize(
    "field", [{"file": "encode.int8.onnx"}, {"files": ["weights.safetensors", "scales.bin"]}]
)
def test_a_variant_that_names_an_absent_file_is_refused(
    directory: Path, field: dict[str, object]
) -> None:
    write_manifest(directory, FIELDS | {"variants": [VARIANT | field]})
    reason = ": variant encode-decomposed-fp32 names a file that is not there"
    assert refusal(directory) == reason


@pytest.mark.parametrize("name", ["sub/weights.safetensors", "../outside", "..", "manifest.json"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(directory: Path, name: str) -> None:
    (directory.parent / "outside").write_bytes(b"")
    stated = {"sha256": hashlib.sha256(b"").hexdigest(), "size": 0}
    edit_manifest(directory, lambda manifest: manifest["files"].update({name: stated}))
    assert refusal(directory) == f" lacks '{name}'"


@pytest.mark.parametrize("field", MANIFEST_FIELDS)
def test_a_manifest_without_a_field_or_with_one_of_another_type_is_refused(
    directory: Path, field: str
) -> None:
    edit_manifest(directory, lambda manifest: manifest.update({field: None}))
    assert refusal(directory).startswith(f"/manifest.json: '{field}' is no ")
    edit_manifest(directory, lambda manifest: manifest.pop(field))
    assert refusal(directory) == f"/manifest.json lacks '{field}'"


@pytest.mark.parametrize("field", FILE_FIELDS)
def test_a_file_entry_without_a_field_or_with_one_of_another_type_is_refused(
    directory: Path, field: str
) -> None:
    edit_manifest(directory, lambda manifest: manifest["files"]["README.md"].update({field: []}))
    assert refusal(directory).startswith(f"/manifest.json: file 'README.md': '{field}' is no ")
    edit_manifest(directory, lambda manifest: manifest["files"]["README.md"].pop(field))
    assert refusal(directory) == f"/manifest.json: file 'README.md' lacks '{field}'"


@pytest.mark.parametrize("field", VARIANT_FIELDS)
def test_a_variant_without_a_field_or_with_one_of_another_type_is_refused(
    directory: Path, field: str
) -> None:
    edit_manifest(directory, lambda manifest: manifest["variants"][0].update({field: None}))
    assert refusal(directory).startswith(f"/manifest.json: variant 0: '{field}' is no ")
    edit_manifest(directory, lambda manifest: manifest["variants"][0].pop(field))
    assert refusal(directory) == f"/manifest.json: variant 0 lacks '{field}'"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.update(files=["a"]), ": 'files' is no object"),
        (lambda m: m.update(variants={}), ": 'variants' is no array"),
        (lambda m: m.update(variants=["encode"]), ": variant 0 is no JSON object"),
        (lambda m: m["files"].update(a="b"), ": file 'a' is no JSON object"),
        (lambda m: m["files"].pop("tokenizer.json"), " names no tokenizer.json"),
        (
            lambda m: m["variants"][0].update(providers="cpu"),
            ": variant 0: 'providers' is no array",
        ),
        (
            lambda m: m["variants"][0].update(files=[{}]),
            ": variant 0: 'files' is no array of strings",
        ),
        (
            lambda m: m["variants"][0].update(providers=[1]),
            ": variant 0: 'providers' is no array of strings",
        ),
    ],
)
def test_a_manifest_of_another_shape_is_refused(
    directory: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    edit_manifest(directory, change)
    assert refusal(directory) == f"/manifest.json{reason}"


def test_a_manifest_may_say_more_than_is_read(directory: Path) -> None:
    variant = VARIANT | {"seconds": 1.5}
    write_manifest(directory, FIELDS | {"variants": [variant], "text_licence": "public domain"})
    assert load_artefact(directory).variants[0].name == variant["name"]


def test_a_copy_of_an_artefact_is_the_same_artefact(artefact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(artefact, tmp_path / "elsewhere")
    assert load_artefact(copy) == load_artefact(artefact)
