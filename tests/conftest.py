"""What tests share: tiny encoders with random weights, their artefacts, a running service."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests import onnxruntime themselves

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from model.checkpoint import Checkpoint, save_checkpoint
from model.config import PRESETS
from model.corpus import shipped
from model.encoder import Encoder
from model.mixers import MIXERS
from model.tokenizer import TRAINERS, Tokenizer
from service.metrics import ModelFacts

torch.set_num_threads(1)

collect_ignore = ["clients"]  # `make test-clients` runs them


def random_encoder(mixer: str, *, vocab_size: int, **fields: object) -> Encoder:
    """A tiny encoder without any zero weight, so that every path shows in its output."""
    config = PRESETS["tiny"].encoder_config(mixer=mixer, vocab_size=vocab_size)
    encoder = Encoder(type(config)(**{**vars(config), **fields})).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return encoder


def tiny_checkpoint(mixer: str, tokenizer: Tokenizer) -> Checkpoint:
    """A run that was never trained."""
    return Checkpoint(random_encoder(mixer, vocab_size=tokenizer.vocab_size), tokenizer, {})


def model_facts(name: str) -> ModelFacts:
    """What the metrics know of a served model."""
    return ModelFacts(
        name=name,
        mixer="mhsa",
        sha256="0" * 64,
        precision="fp32",
        provider="cpu",
        provider_requested="cpu",
        runtime_version="1",
    )


@pytest.fixture(scope="session")
def char_tokenizer() -> Tokenizer:
    return TRAINERS["char"]([shipped().text])


@pytest.fixture(scope="session")
def artefact_of(
    tmp_path_factory: pytest.TempPathFactory, char_tokenizer: Tokenizer
) -> Callable[..., Path]:
    """Gives the directory of a tiny artefact; each is exported once, whatever process asks first.

    Tests must not write to it.
    """
    root, texts = tmp_path_factory.getbasetemp(), [shipped().text[:200_000]]
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # one for all workers

    def make(mixer: str, *, tokenizer: str = "char") -> Path:
        name = f"tiny-{tokenizer}-{mixer}".replace("_", "-")
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (root / name).exists():
                trained = (
                    char_tokenizer
                    if tokenizer == "char"
                    else TRAINERS[tokenizer](texts, vocab_size=400)
                )
                export(tiny_checkpoint(mixer, trained), root / name)
        return root / name

    return make


def export(checkpoint: Checkpoint, out: Path) -> None:
    """The artefact of a checkpoint, by the command: tracing is slow in a watched process."""
    run = out.with_name(f"{out.name}.run")
    run.mkdir()
    save_checkpoint(
        run, encoder=checkpoint.encoder, tokenizer=checkpoint.tokenizer, summary=checkpoint.summary
    )
    subprocess.run([sys.executable, "-m", "export.cli", str(run), str(out)], check=True)


@pytest.fixture(scope="session", params=MIXERS)
def artefact(request: pytest.FixtureRequest, artefact_of: Callable[..., Path]) -> Path:
    """The tiny character artefact of each mixer; tests must not write to it."""
    return artefact_of(request.param)
