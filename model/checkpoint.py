"""One file that holds a run: weights, and in its header the config, tokenizer and progress.

A single safetensors file is replaced in one step, so a reader or a crash finds the old or the new
one, whole. While a run is unfinished, what it needs to go on lies in the same file.
"""

import copy
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from model.config import EncoderConfig, encoder_config_from_json, to_json
from model.encoder import Encoder
from model.files import write_atomically
from model.tokenizer import Tokenizer

FILE_NAME = "checkpoint.safetensors"
FORMAT = "maskwright-checkpoint-1"
STATE = "training/"  # before the names of tensors that only training needs


@dataclass(frozen=True)
class Checkpoint:
    """A loaded run: its encoder (in evaluation mode), tokenizer and training summary.

    Attributes:
        state: The optimizers' memory, of an unfinished run.
        record: Its losses and cost so far, of an unfinished run.
    """

    encoder: Encoder
    tokenizer: Tokenizer
    summary: dict[str, Any]
    state: dict[str, Tensor] = field(default_factory=dict)
    record: dict[str, Any] | None = None

    @property
    def config(self) -> EncoderConfig:
        """The encoder's."""
        return self.encoder.config


def blended(checkpoint: Checkpoint, other: Checkpoint, share: float) -> Checkpoint:
    """`checkpoint` with its weights moved by `share` of the way towards another run's.

    Between a model and what it was tuned to lie models that keep much of both: Wortsman et al.
    2021, arXiv:2109.01903.

    Raises:
        ValueError: `share` is not from 0 to 1, or the two have not one vocabulary and one shape.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share}; from 0 to 1")
    same = checkpoint.tokenizer.to_json() == other.tokenizer.to_json()
    if not (same and checkpoint.config == other.config):
        raise ValueError("runs blend that have one vocabulary and one shape; these have not")
    encoder, towards = copy.deepcopy(checkpoint.encoder), other.encoder.state_dict()
    with torch.no_grad():
        for name, tensor in encoder.state_dict().items():
            tensor.lerp_(towards[name], share)
    return replace(checkpoint, encoder=encoder)


def blended_with(checkpoint: Checkpoint, run: str, share: str) -> Checkpoint:
    """`blended`, of what a command was told; the summary says so, and keeps no score.

    Raises:
        ValueError: The share is no number from 0 to 1, or the two do not blend.
        FileNotFoundError: There is no such run.
    """
    try:
        part = float(share)
    except ValueError:
        raise ValueError(f"--blend RUN SHARE: {share!r} is no number; from 0 to 1") from None
    found = blended(checkpoint, load_checkpoint(Path(run)), part)
    summary = {name: value for name, value in found.summary.items() if name != "held_out"}
    summary["blend"] = {"run": Path(run).resolve().name, "share": part}
    return replace(found, summary=summary)


def save_checkpoint(
    directory: Path,
    *,
    encoder: Encoder,
    tokenizer: Tokenizer,
    summary: Mapping[str, Any],
    state: Mapping[str, Tensor] | None = None,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run's file into `directory`, all or nothing.

    Args:
        state, record: What an unfinished run needs to go on; see `Checkpoint`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    metadata = {
        "format": FORMAT,
        "config": json.dumps(to_json(encoder.config)),
        "tokenizer": tokenizer.to_json(),
        "summary": json.dumps(summary),
    }
    if record is not None:
        metadata["record"] = json.dumps(record)
    tensors = dict(encoder.state_dict())
    tensors |= {STATE + name: tensor for name, tensor in (state or {}).items()}
    path = directory / FILE_NAME
    write_atomically(path, save(tensors, metadata))
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
        tensors, metadata = load(data), _metadata(data)
    except (SafetensorError, ValueError, struct.error) as cause:
        raise ValueError(f"{path} is damaged: {cause}") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is no checkpoint of ours: format {metadata.get('format')!r}")
    state = {n.removeprefix(STATE): t for n, t in tensors.items() if n.startswith(STATE)}
    weights = {n: t for n, t in tensors.items() if not n.startswith(STATE)}
    try:
        encoder = Encoder(encoder_config_from_json(json.loads(metadata["config"])))
        encoder.load_state_dict(weights)
        tokenizer = Tokenizer.from_json(metadata["tokenizer"])
        summary = json.loads(metadata["summary"])
        record = json.loads(metadata.get("record", "null"))
    except (KeyError, TypeError, ValueError, RuntimeError) as cause:  # torch's is a RuntimeError
        raise ValueError(f"{path} does not fit itself: {cause}") from None
    return Checkpoint(encoder.eval(), tokenizer, summary, state, record)


def _metadata(data: bytes) -> dict[str, str]:
    (n_header,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + n_header])
    return header.get("__metadata__", {})
