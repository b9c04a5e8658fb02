"""Questions with one mask: how they are made, and that they are answered in their order."""

import numpy as np
import pytest

from model.guesser import guesser
from model.questions import ask, blanks, masked
from model.tokenizer import TRAINERS, Tokenizer
from tests.conftest import random_encoder
from tests.model.knowing import knowing, tokenizer_of

TEXT = "rome is the capital of italy ."


def test_a_blank_hides_the_token_of_its_word_between_prefix_and_suffix() -> None:
    tokenizer = tokenizer_of(TEXT)
    subject = knowing(tokenizer, [])
    (found,) = blanks(subject, [("[MASK] is the capital of Italy.", "Rome")])
    (rome,) = tokenizer.target_ids("rome")
    assert found is not None
    assert found.wanted == rome
    assert found.ids == tokenizer.wrap(tokenizer.encode("[MASK] is the capital of italy .").ids)
    assert found.ids[found.column] == tokenizer.mask_id


@pytest.mark.parametrize("word", ["italyrome", "rome italy", "\u65e5", ""])
def test_a_word_that_is_not_one_known_token_makes_no_blank(word: str) -> None:
    subject = knowing(tokenizer_of(TEXT), [])
    assert blanks(subject, [("[MASK] is the capital .", word)]) == [None]


def test_a_word_of_byte_level_bpe_is_the_token_that_it_is_in_its_place() -> None:
    tokenizer = TRAINERS["bpe"](["Rome is Rome is Rome is Rome"], vocab_size=300)
    subject = knowing(tokenizer, [])
    first, later = blanks(subject, [("[MASK] is Rome", "Rome"), ("Rome is [MASK]", "Rome")])
    assert first is not None
    assert later is not None
    assert tokenizer.token_str(first.wanted) == "Rome"
    assert tokenizer.token_str(later.wanted) == " Rome"


@pytest.mark.parametrize("column", [0, 7, 24, 49])
def test_of_a_long_text_the_part_around_the_mask_is_asked(column: int) -> None:
    tokenizer = tokenizer_of(TEXT)
    subject = knowing(tokenizer, [], max_tokens=10)
    ids = list(range(100, 150))
    found = masked(subject, ids, column, ids[column])
    assert len(found.ids) == 10
    assert found.ids[0:1] == tokenizer.prefix
    assert found.ids[-1:] == tokenizer.suffix
    shown = [ids[column] if i == tokenizer.mask_id else i for i in found.ids[1:-1]]
    assert found.ids[found.column] == tokenizer.mask_id
    assert shown == list(range(shown[0], shown[0] + 8))


def test_questions_of_all_lengths_are_answered_as_each_by_itself(
    char_tokenizer: Tokenizer,
) -> None:
    encoder = random_encoder("mhsa", vocab_size=char_tokenizer.vocab_size)
    subject = guesser(encoder, char_tokenizer)
    texts = ["to be", "or not", "a", "to be or not to be", "no", "is th"]
    questions = [
        masked(subject, ids, len(ids) // 2, ids[len(ids) // 2])
        for ids in char_tokenizer.encode_ids(texts)
    ]
    losses, ranks = ask(subject, questions)
    for question, loss, rank in zip(questions, losses, ranks, strict=True):
        (alone,), (place,) = ask(subject, [question])
        assert loss == pytest.approx(alone, rel=1e-5)  # float32 in another batch
        assert rank == place
    assert all(len(found) == 0 for found in ask(subject, []))
    assert np.unique(losses).size > 1
