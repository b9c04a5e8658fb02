"""What tests share: tiny encoders with random weights, their artefacts, a running service."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests import onnxruntime themselves

import fcntl
import subprocess
import sys
from collections.abc import Callable, Mapping
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


def tiny_checkpoint(mixer: str, tokenizer: Tokenizer, **fields: object) -> Checkpoint:
    """A run that was never trained."""
    encoder = random_encoder(mixer, vocab_size=tokenizer.vocab_size, **fields)
    return Checkpoint(encoder, tokenizer, {})


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
def tokenizers(char_tokenizer: Tokenizer) -> dict[str, Tokenizer]:
    """A tokenizer from each entry of `TRAINERS`."""
    texts = [shipped().text[:60_000]]
    trained = {name: train(texts, vocab_size=400) for name, train in TRAINERS.items()}
    return trained | {"char": char_tokenizer}


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
        with (root / f"{tokenizer}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (root / tokenizer).exists():
                trained = (
                    char_tokenizer
                    if tokenizer == "char"
                    else TRAINERS[tokenizer](texts, vocab_size=400)
                )
                # Both mixers at once for most tests, which wait for them; for the rest one layer.
                n_layers, mixers = (2, list(MIXERS)) if tokenizer == "char" else (1, ["mhsa"])
                export(
                    root / tokenizer,
                    {each: tiny_checkpoint(each, trained, n_layers=n_layers) for each in mixers},
                )
        return root / tokenizer / f"tiny-{tokenizer}-{mixer}".replace("_", "-")

    return make


def export(out: Path, checkpoints: Mapping[str, Checkpoint]) -> None:
    """Artefacts of checkpoints by mixer, by the command: tracing is slow in a watched process."""
    exporting = []
    for mixer, checkpoint in checkpoints.items():
        run = out / f"{mixer}.run"
        run.mkdir(parents=True)
        save_checkpoint(run, encoder=checkpoint.encoder, tokenizer=checkpoint.tokenizer, summary={})
        name = f"tiny-{out.name}-{mixer}".replace("_", "-")
        command = [sys.executable, "-m", "export.cli", str(run), str(out / name)]
        if out.name == "wordpiece":  # one kind has what may be left out
            (run / "notes.md").write_text("## Known failures\n\nIt was never trained.\n")
            command += ["--weights", "fp16", "--notes", str(run / "notes.md")]
        exporting.append(subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}))
    assert not any([process.wait() for process in exporting])


@pytest.fixture(scope="session", params=MIXERS)
def artefact(request: pytest.FixtureRequest, artefact_of: Callable[..., Path]) -> Path:
    """The tiny character artefact of each mixer; tests must not write to it."""
    return artefact_of(request.param)
