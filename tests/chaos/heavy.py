"""An artefact so large that two cores answer fewer than a hundred of its longest texts a second.

Its weights are random: what it says is of no use, how long it takes is.
"""

from pathlib import Path

import torch

from export.build import build_artefact
from model.checkpoint import Checkpoint
from model.config import PRESETS
from model.corpus import shipped
from model.encoder import Encoder
from model.tokenizer import TRAINERS

MAX_TOKENS = 256


def build(directory: Path) -> None:
    tokenizer = TRAINERS["char"]([shipped().text])
    preset = PRESETS["tiny"].encoder_config(mixer="mhsa", vocab_size=tokenizer.vocab_size)
    fields = {"d_model": 384, "n_layers": 6, "n_heads": 6, "max_tokens": MAX_TOKENS}
    encoder = Encoder(type(preset)(**vars(preset) | fields)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.05, generator=generator)
    build_artefact(Checkpoint(encoder, tokenizer, {}), directory, name="heavy")
