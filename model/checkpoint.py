"""One file that holds a run: weights, and in its header the config, tokenizer and progress.

A single safetensors file is replaced in one step, so a reader or a crash finds the old or the new
one, whole.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from model.config import EncoderConfig, encoder_config_from_json, to_json
from model.encoder import Encoder
from model.tokenizer import Tokenizer

FILE_NAME = "checkpoint.safetensors"
FORMAT = "maskwright-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """A loaded run: its encoder (in evaluation mode), tokenizer and training summary."""

    encoder: Encoder
    tokenizer: Tokenizer
    summary: dict[str, Any]

    @property
    def config(self) -> EncoderConfig:
        """The encoder's."""
        return self.encoder.config


def save_checkpoint(
    directory: Path, *, encoder: Encoder, tokenizer: Tokenizer, summary: Mapping[str, Any]
) -> Path:
    """Write a run's file into `directory`, all or nothing."""
    directory.mkdir(parents=True, exist_ok=True)
    metadata = {
        "format": FORMAT,
        "config": json.dumps(to_json(encoder.config)),
        "tokenizer": tokenizer.to_json(),
        "summary": json.dumps(summary),
    }
    path = directory / FILE_NAME
    write_atomically(path, save(dict(encoder.state_dict()), metadata))
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """The run in a checkpoint file, or in a directory that holds one.

    Raises:
        ValueError: The file is damaged or not one of ours.
        FileNotFoundError: There is none.
    """
    if path.is_dir():
        path = path / FILE_NAME
    data = path.read_bytes()
    try:
        weights, metadata = load(data), _metadata(data)
    except (SafetensorError, ValueError, struct.error) as cause:
        raise ValueError(f"{path} is damaged: {cause}") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is no checkpoint of ours: format {metadata.get('format')!r}")
    try:
        encoder = Encoder(encoder_config_from_json(json.loads(metadata["config"])))
        encoder.load_state_dict(weights)
        tokenizer = Tokenizer.from_json(metadata["tokenizer"])
        summary = json.loads(metadata["summary"])
    except (KeyError, TypeError, ValueError, RuntimeError) as cause:  # torch's is a RuntimeError
        raise ValueError(f"{path} does not fit itself: {cause}") from None
    return Checkpoint(encoder.eval(), tokenizer, summary)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step, on the disk before it counts."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _metadata(data: bytes) -> dict[str, str]:
    (n_header,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + n_header])
    return header.get("__metadata__", {})
