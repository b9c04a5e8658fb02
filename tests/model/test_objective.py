"""The masked-language-model loss."""

import dataclasses
import math

import pytest
import torch

from model.batches import MaskedBatch
from model.config import PRESETS
from model.encoder import Encoder
from model.mixers import MIXERS
from model.objective import LARGE_VOCABULARY, ROWS_AT_ONCE, MaskedLoss, masked_loss
from tests.conftest import random_encoder

every_mixer = pytest.mark.parametrize("mixer", MIXERS)


def batch() -> MaskedBatch:
    ids = torch.randint(3, 11, (2, 6), generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[0, 1], [1, 0], [1, 4]])
    ids[positions[:, 0], positions[:, 1]] = 2
    return MaskedBatch(ids, positions, torch.tensor([7, 3, 10]))


@every_mixer
def test_the_loss_is_the_mean_surprise_at_the_masked_tokens(mixer: str) -> None:
    encoder, given = random_encoder(mixer, vocab_size=11), batch()
    logits = encoder.logits(encoder(given.ids), given.positions)
    surprise = [
        -row.double().log_softmax(dim=0)[target].item()
        for row, target in zip(logits, given.targets, strict=True)
    ]
    # 1e-5: the loss is summed in float32, the check in float64.
    assert masked_loss(encoder, given).item() == pytest.approx(sum(surprise) / 3, rel=1e-5)


@every_mixer
def test_an_encoder_that_knows_nothing_loses_the_logarithm_of_the_vocabulary(mixer: str) -> None:
    encoder = random_encoder(mixer, vocab_size=11)
    torch.nn.init.zeros_(encoder.head.weight)
    torch.nn.init.zeros_(encoder.head_bias)
    assert masked_loss(encoder, batch()).item() == pytest.approx(math.log(11), rel=1e-6)


@every_mixer
def test_every_parameter_that_the_rows_reach_learns_from_the_loss(mixer: str) -> None:
    encoder = random_encoder(mixer, vocab_size=11, max_tokens=6)
    masked_loss(encoder, batch()).backward()
    assert all(parameter.grad.any() for parameter in encoder.parameters())


@every_mixer
def test_the_losses_of_the_parts_of_a_batch_add_up(mixer: str) -> None:
    loss, given = MaskedLoss(random_encoder(mixer, vocab_size=11)), batch()
    parts = [given.part(i, 2) for i in range(2)]
    found = sum(loss(part.ids, part.positions, part.targets).item() for part in parts)
    whole = loss(given.ids, given.positions, given.targets).item()
    assert found == pytest.approx(whole, rel=1e-6)  # float32 rounding


@pytest.mark.parametrize("tied", [False, True])
def test_a_large_vocabulary_has_the_loss_and_gradients_of_its_logits(tied: bool) -> None:
    n_ids, n_rows = LARGE_VOCABULARY + 5, 2 * ROWS_AT_ONCE // 6 + 1  # three parts
    config = PRESETS["tiny"].encoder_config(mixer="mhsa", vocab_size=n_ids)
    encoder = Encoder(dataclasses.replace(config, tied_head=tied))
    random = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(encoder.head_bias, generator=random)
    ids = torch.randint(3, n_ids, (n_rows, 6), generator=random)
    positions = torch.cartesian_prod(torch.arange(n_rows), torch.arange(6))
    targets = torch.randint(3, n_ids, (len(positions),), generator=random)
    assert len(positions) > 2 * ROWS_AT_ONCE
    loss = MaskedLoss(encoder)(ids, positions, targets)
    found = torch.autograd.grad(3 * loss, list(encoder.parameters()))
    logits = encoder.logits(encoder(ids), positions)
    plain = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    expected = torch.autograd.grad(3 * plain, list(encoder.parameters()))
    torch.testing.assert_close(loss, plain)
    # Sums of a thousand float32 gradients in another order.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
