"""Minimal pairs: pseudo-log-likelihoods, shares known by hand, and the files that hold them."""

import json
from pathlib import Path

import pytest
import torch

from model.guesser import guesser
from model.minimal_pairs import (
    MinimalPair,
    minimal_pairs_of,
    preference,
    pseudo_log_likelihoods,
)
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder
from tests.model.knowing import knowing, tokenizer_of

RIGHT, WRONG = "the dog sleeps .", "the dog sleep ."


def pair(good: str, bad: str, *, name: str = "agreement", field: str = "syntax") -> MinimalPair:
    return MinimalPair(name, field, good, bad)


def test_the_likelier_sentence_wins_and_a_tie_counts_half() -> None:
    subject = knowing(tokenizer_of(RIGHT, WRONG, "cat"), [RIGHT])
    sets = {
        "agreement": [pair(RIGHT, WRONG), pair(WRONG, RIGHT), pair(RIGHT, WRONG)],
        "words": [pair("cat cat .", "dog dog .", name="words", field="semantics")],
    }
    told: list[int] = []
    found = preference(subject, sets, tell=told.append)
    assert found.sets == {"agreement": pytest.approx(2 / 3), "words": 0.5}
    assert found.fields == {"syntax": pytest.approx(2 / 3), "semantics": 0.5}
    assert found.accuracy == pytest.approx(2.5 / 4)
    assert found.n_pairs == 4
    assert told == [1, 1]


def test_a_pseudo_log_likelihood_masks_each_token_in_turn(char_tokenizer: Tokenizer) -> None:
    encoder = random_encoder("mlp_mixer", vocab_size=char_tokenizer.vocab_size)
    sentences = ["to be", "or not to be", "o\u65e5o"]  # the last has an unknown character
    found = pseudo_log_likelihoods(guesser(encoder, char_tokenizer), sentences)
    for sentence, total in zip(sentences, found, strict=True):
        ids, expected = char_tokenizer.encode(sentence).ids, 0.0
        for column, token in enumerate(ids):
            if token != char_tokenizer.unknown_id:
                row = torch.tensor([ids])
                row[0, column] = char_tokenizer.mask_id
                logits = encoder.logits(encoder(row), torch.tensor([[0, column]]))[0].double()
                logits[list(char_tokenizer.special_ids)] = -torch.inf
                expected += logits.log_softmax(dim=0)[token].item()
        assert total == pytest.approx(expected, rel=1e-5)  # the encoder's float32


def record(**fields: object) -> str:
    made = {"uid": "agreement", "term": "x", "field": "syntax", "good": RIGHT, "bad": WRONG}
    return json.dumps(made | fields) + "\n"


def test_the_first_pairs_of_each_set_are_read_under_either_names(tmp_path: Path) -> None:
    own = {"UID": "islands", "field": "syntax", "sentence_good": "a", "sentence_bad": "b"}
    (tmp_path / "one.jsonl").write_text(record() + record(good="later") + record(uid="other"))
    (tmp_path / "two.jsonl").write_text(json.dumps(own))
    found = minimal_pairs_of([tmp_path / "one.jsonl", tmp_path / "two.jsonl"], per_set=1)
    assert found == {
        "agreement": [pair(RIGHT, WRONG)],
        "other": [pair(RIGHT, WRONG, name="other")],
        "islands": [pair("a", "b", name="islands")],
    }


@pytest.mark.parametrize(
    ("text", "per_set", "sentence"),
    [
        (record() + record(bad=""), 1, "line 2 has no text 'sentence_bad'; wanted: UID/uid, field"),
        (record() + "3", 1, "line 2 is no JSON object"),
        (record(), 0, "0 pairs of each set; at least 1"),
    ],
)
def test_a_file_without_pairs_is_refused(
    tmp_path: Path, text: str, per_set: int, sentence: str
) -> None:
    (tmp_path / "pairs.jsonl").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        minimal_pairs_of([tmp_path / "pairs.jsonl"], per_set=per_set)
