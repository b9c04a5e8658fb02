"""The losses of sentence vectors, and the directions they are taken along."""

import math

import numpy as np
import pytest
import torch

from model.distil import (
    contrast,
    imitation,
    likeness,
    nearest,
    onto_leading,
    prefixes,
    rows_of,
    sentence_vectors,
)
from model.mixers import MIXERS
from model.pooling import mean
from model.tokenizer import Tokenizer
from tests.conftest import random_encoder


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_leading_directions_keep_products_and_come_in_order_of_what_they_carry() -> None:
    vectors = (drawn(500, 6) * torch.tensor([1.0, 9.0, 2.0, 7.0, 0.5, 3.0])).numpy()
    turned = onto_leading(vectors, 6).astype(np.float64)
    # 2: half precision of products of some hundreds.
    assert np.allclose(turned @ turned.T, vectors @ vectors.T, atol=2)
    power = (turned**2).sum(axis=0)
    assert (np.diff(power) < 0).all()
    leading = onto_leading(vectors, 2)
    assert leading.shape == (500, 2)
    assert np.array_equal(leading, onto_leading(vectors, 6)[:, :2])
    assert onto_leading(vectors, 9).shape == (500, 6)


def test_directions_do_not_hang_on_the_order_of_the_vectors() -> None:
    vectors = drawn(300, 8).numpy()
    there, back = onto_leading(vectors, 4), onto_leading(vectors[::-1], 4)[::-1]
    assert np.allclose(there, back, atol=2e-3)  # half precision


def test_the_nearest_is_the_likest_other_vector_whatever_its_length() -> None:
    directions = drawn(50, 12).numpy()
    twins = directions * 3 + 0.01 * drawn(50, 12, seed=1).numpy()
    found = nearest(np.stack([directions, twins], axis=1).reshape(100, 12))
    assert found.tolist() == [i + 1 - 2 * (i % 2) for i in range(100)]  # its twin


def test_the_nearest_is_looked_for_within_a_stretch() -> None:
    found = nearest(drawn(2500, 8).numpy(), among=1250)
    assert ((found < 1250) == (np.arange(2500) < 1250)).all()
    assert (found != np.arange(2500)).all()


def test_prefixes_are_halves_down_to_32() -> None:
    assert prefixes(256) == [256, 128, 64, 32]
    assert prefixes(384) == [384, 192, 96, 48]
    assert prefixes(20) == [20]


def test_the_teachers_own_vectors_imitate_it_whatever_their_length_and_width() -> None:
    wanted = drawn(8, 40)
    found = torch.cat([3 * wanted, drawn(8, 10, seed=1)], dim=1)
    assert imitation(found, wanted).item() == pytest.approx(0.0, abs=1e-5)
    assert imitation(drawn(8, 50, seed=1), wanted).item() > 0.5


def test_leading_features_count_more_than_later_ones() -> None:
    wanted = drawn(8, 64)
    without_the_end, without_the_start = wanted.clone(), wanted.clone()
    without_the_end[:, 40:] = 0
    without_the_start[:, :24] = 0
    own, end, start = (
        imitation(x, wanted).item() for x in (wanted, without_the_end, without_the_start)
    )
    assert own < end < 0.8 * start


def test_likeness_within_a_batch_counts_beside_the_direction() -> None:
    wanted = drawn(6, 32)
    # Turned all alike: other directions, the same similarities.
    turned = wanted @ torch.linalg.qr(drawn(32, 32, seed=2))[0]
    cosine = torch.nn.functional.cosine_similarity(turned, wanted, dim=1)
    assert imitation(turned, wanted).item() == pytest.approx((1 - cosine).mean().item(), abs=1e-5)


def test_contrast_is_the_surprise_at_the_partner() -> None:
    first = torch.eye(4, 40)
    assert contrast(first, first).item() == pytest.approx(0.0, abs=1e-6)
    assert contrast(first, torch.zeros(4, 40)).item() == pytest.approx(math.log(4))
    assert contrast(first, first.roll(1, 0)).item() > 5


def test_likeness_is_the_cosines_distance_from_the_score() -> None:
    first = torch.eye(3, 40)
    second = torch.stack([first[0], first[0], -first[2]])
    perfect = likeness(first, second, torch.tensor([1.0, 0.0, -1.0]))
    assert perfect.item() == pytest.approx(0.0, abs=1e-6)
    assert likeness(first, second, torch.tensor([1.0, 0.0, 0.0])).item() > 1


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_sentences_vector_is_the_mean_of_its_row_whatever_its_batch(
    tokenizers: dict[str, Tokenizer], mixer: str
) -> None:
    tokenizer = tokenizers["wordpiece"]
    encoder = random_encoder(mixer, vocab_size=tokenizer.vocab_size)
    texts = [
        "to be",
        "or not to be that is the question",
        "whether",
        "nobler in the mind",
        "a " * 99,
    ]
    rows = rows_of(texts, tokenizer, max_tokens=32)
    assert max(map(len, rows)) == 32
    assert all(row == tokenizer.wrap(row[1:-1]) for row in rows)
    found = sentence_vectors(encoder, rows)
    for row, vector in zip(rows, found, strict=True):
        ids = torch.tensor([row])
        alone = mean(encoder(ids), torch.ones_like(ids, dtype=torch.bool))[0]
        torch.testing.assert_close(vector, alone, rtol=1e-4, atol=1e-5)  # batches round otherwise
