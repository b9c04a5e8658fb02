"""What the model's tests share: one tokenizer of each kind, a tiny run, batches with padding."""

import dataclasses
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tokenizers import Tokenizer as Backend

from model.config import PRESETS
from model.corpus import Corpus, shipped
from model.tokenizer import Tokenizer
from model.train import Run

# For properties. No deadline: on a busy machine a slow example says nothing about the code. The
# same examples each time, so that a red run is red again.
examples = settings(deadline=None, derandomize=True, max_examples=30)


class InterruptingStream(io.StringIO):
    """A terminal whose user presses Ctrl-C at the first line."""

    def write(self, text: str) -> int:
        if not self.getvalue():
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


@pytest.fixture(scope="session")
def tiny_teacher(
    tokenizers: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The directory of a sentence encoder with random weights, as the library of others saves it.

    Tests must not write to it.
    """
    from transformers import BertConfig, BertModel  # seconds to import

    directory = tmp_path_factory.mktemp("teacher")
    backend = Backend.from_str(tokenizers["wordpiece"].to_json())
    config = BertConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(directory)
    backend.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def tiny_run(char_tokenizer: Tokenizer) -> Callable[..., Run]:
    """Gives a run that takes a second; `fields` change its recipe."""

    def make(*, mixer: str = "mhsa", seed: int = 0, **fields: object) -> Run:
        small = {"row_lengths": (8,), "batch_tokens": 64, "steps": 6, "log_every": 1}
        small |= {"eval_length": 8, "eval_every": 4}
        preset = PRESETS["tiny"]
        return Run(
            config=preset.encoder_config(mixer=mixer, vocab_size=char_tokenizer.vocab_size),
            recipe=dataclasses.replace(preset.recipe, **small | fields),
            corpus=Corpus("excerpt", shipped().text[:2000], "public domain"),
            tokenizer=char_tokenizer,
            seed=seed,
        )

    return make
