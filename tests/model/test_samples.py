"""Filled-in masks, as a reader sees them."""

import pytest
import torch

from model.samples import filled
from model.tokenizer import TRAINERS, Tokenizer
from tests.conftest import random_encoder


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_sample_is_the_text_with_its_guesses_marked(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = tokenizers[kind]
    encoder = random_encoder("mhsa", vocab_size=tokenizer.vocab_size)
    text = "to be or not to be\nthat is the question whether it is nobler in the mind"
    ids = tokenizer.encode_corpus(text)[:30]
    pieces = ["¶" if i in tokenizer.suffix else tokenizer.token_str(i) for i in ids.tolist()]
    assert ("¶" in pieces) == (kind != "char")
    text = "".join(pieces).replace("##", "")
    # A head that always says one token: right where that stood, wrong elsewhere.
    always = int(ids[1])
    torch.nn.init.zeros_(encoder.head.weight)
    torch.nn.init.zeros_(encoder.head_bias)
    with torch.no_grad():
        encoder.head_bias[always] = 1.0
    said = tokenizer.token_str(always)
    shown = filled(encoder, ids, tokenizer=tokenizer)
    assert f"[{said}|" in shown
    plain = shown.replace(f"[{said}|", "").replace(f"[{said}]", said).replace("]", "")
    assert plain.replace("##", "").replace(" ", "") == text.replace(" ", "")
