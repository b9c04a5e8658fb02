"""Checkpoints: what comes back is what was saved, and a file is replaced whole or not at all."""

import contextlib
import json
import re
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.checkpoint import (
    FILE_NAME,
    FORMAT,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from model.mixers import MIXERS
from model.tokenizer import TRAINERS, Tokenizer
from tests.conftest import random_encoder, tiny_checkpoint

SUMMARY = {"step": 7, "corpus": {"name": "é"}, "curve": [1, 2.5, None]}


def saved(directory: Path, checkpoint: Checkpoint) -> Path:
    return save_checkpoint(
        directory, encoder=checkpoint.encoder, tokenizer=checkpoint.tokenizer, summary=SUMMARY
    )


@pytest.fixture
def path(tmp_path: Path, char_tokenizer: Tokenizer) -> Path:
    """The file of a tiny run."""
    return saved(tmp_path / "run", tiny_checkpoint("mhsa", char_tokenizer))


@pytest.mark.parametrize("kind", TRAINERS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_loaded_run_gives_the_same_outputs(
    tmp_path: Path, tokenizers: dict[str, Tokenizer], mixer: str, kind: str
) -> None:
    before = tiny_checkpoint(mixer, tokenizers[kind])
    after = load_checkpoint(saved(tmp_path, before))
    text = before.tokenizer.encode("To [MASK] or not").ids
    assert after.tokenizer.encode("To [MASK] or not").ids == text
    ids, lengths = torch.tensor([text]), torch.tensor([len(text)])
    assert torch.equal(after.encoder(ids, lengths), before.encoder(ids, lengths))
    hidden, at = before.encoder(ids, lengths), torch.tensor([[0, 2]])
    assert torch.equal(after.encoder.logits(hidden, at), before.encoder.logits(hidden, at))


@pytest.mark.parametrize("tied_head", [False, True])
def test_a_loaded_run_has_its_config_and_summary_and_is_in_evaluation_mode(
    tmp_path: Path, char_tokenizer: Tokenizer, tied_head: bool
) -> None:
    encoder = random_encoder("mhsa", vocab_size=68, tied_head=tied_head, dropout=0.5).train()
    loaded = load_checkpoint(saved(tmp_path, Checkpoint(encoder, char_tokenizer, {})))
    assert loaded.config == encoder.config
    assert loaded.summary == SUMMARY
    assert not loaded.encoder.training


def test_a_run_loads_from_its_directory(path: Path) -> None:
    assert path.name == FILE_NAME
    assert load_checkpoint(path.parent).summary == SUMMARY


def test_saving_again_replaces_the_file_and_leaves_nothing_else(
    path: Path, char_tokenizer: Tokenizer
) -> None:
    saved(path.parent, tiny_checkpoint("mlp_mixer", char_tokenizer))
    assert load_checkpoint(path).config.mixer == "mlp_mixer"
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none")):
        load_checkpoint(tmp_path / "none")


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path / FILE_NAME)):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.00005, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused_by_its_path(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=f"^{path} is damaged: "):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "data",
    [
        b"no safetensors at all",
        bytes(64),
        b"\xff" * 64,
        struct.pack("<Q", 4) + b"\xff{}}" + bytes(8),  # a header that is no UTF-8
    ],
)
def test_garbage_is_refused_by_its_path(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"^{path} is damaged: "):
        load_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_weights_of_another_program_are_refused_by_their_path(
    path: Path, metadata: dict[str, str] | None
) -> None:
    save_file({"weight": torch.zeros(2)}, path, metadata)
    said = "None" if metadata is None else "'pt'"
    with pytest.raises(ValueError, match=f"^{path} is no checkpoint of ours: format {said}$"):
        load_checkpoint(path)


def test_the_header_says_what_a_run_is_without_its_weights(path: Path) -> None:
    data = path.read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    metadata = json.loads(data[8 : 8 + n_header])["__metadata__"]
    assert metadata["format"] == FORMAT
    assert json.loads(metadata["config"])["mixer"] == "mhsa"
    assert json.loads(metadata["summary"]) == SUMMARY


def test_no_constant_tables_are_saved(path: Path) -> None:
    encoder = load_checkpoint(path).encoder
    assert load_file(path).keys() == dict(encoder.named_parameters()).keys()


@contextlib.contextmanager
def disk_that_is_full_after(n_bytes: int) -> Iterator[None]:
    """No file of this process can grow past `n_bytes`; writing on fails with an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_write_leaves_the_old_file_whole_and_nothing_else(
    path: Path, char_tokenizer: Tokenizer
) -> None:
    before = path.read_bytes()
    with disk_that_is_full_after(len(before) // 2), pytest.raises(OSError, match="too large"):
        saved(path.parent, tiny_checkpoint("mlp_mixer", char_tokenizer))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_an_unfinished_run_needs_comes_back_beside_its_weights(
    path: Path, char_tokenizer: Tokenizer
) -> None:
    encoder = tiny_checkpoint("mhsa", char_tokenizer).encoder
    state = {"0.1.average": torch.arange(6.0).view(2, 3), "1.0.step": torch.tensor(4.0)}
    record = {"train": [[1, 0.1 + 0.2]]}
    save_checkpoint(
        path.parent,
        encoder=encoder,
        tokenizer=char_tokenizer,
        summary=SUMMARY,
        state=state,
        record=record,
    )
    loaded = load_checkpoint(path)
    assert loaded.record == record
    assert loaded.state.keys() == state.keys()
    assert all(torch.equal(loaded.state[name], state[name]) for name in state)
    assert loaded.encoder.state_dict().keys() == encoder.state_dict().keys()


@pytest.mark.parametrize("field", ["config", "tokenizer", "summary"])
def test_a_checkpoint_whose_parts_do_not_fit_names_its_path(field: str, path: Path) -> None:
    data = path.read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    metadata = json.loads(data[8 : 8 + n_header])["__metadata__"]
    save_file(load_file(path), path, metadata | {field: "{}" if field == "config" else "{"})
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load_checkpoint(path)
