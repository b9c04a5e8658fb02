"""What the export tests share: the encoder an artefact was exported from."""

from collections.abc import Callable

import pytest
from hypothesis import settings

from model.encoder import Encoder
from model.mixers import MIXERS
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder

# No deadline: on a busy machine a slow example says nothing about the code. The same examples each
# time, so that a red run is red again.
repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=100)


@pytest.fixture(scope="session")
def encoder_of(char_tokenizer: Tokenizer) -> Callable[[str], Encoder]:
    """Gives the encoder that the tiny character artefact of a mixer was exported from."""
    encoders = {
        mixer: random_encoder(mixer, vocab_size=char_tokenizer.vocab_size) for mixer in MIXERS
    }
    return encoders.__getitem__
