"""Optimizers: each learns, Muon's steps are orthogonal, and rates follow their schedule."""

import pytest
import torch
from torch import Tensor, nn

from model.batches import MaskedBatch
from model.config import Recipe
from model.encoder import Encoder
from model.mixers import MIXERS
from model.objective import masked_loss
from model.optimizer import OPTIMIZERS, SCHEDULES, Muon, Optimizers, orthogonalised
from tests.conftest import random_encoder

every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def recipe(**fields: object) -> Recipe:
    return Recipe(**{"steps": 40, "warmup_steps": 5} | fields)


def riddle() -> MaskedBatch:
    """Rows whose one masked token follows from the token before it."""
    ids = torch.randint(3, 11, (8, 6), generator=torch.Generator().manual_seed(0))
    positions = torch.stack([torch.arange(8), torch.full((8,), 3)], dim=1)
    targets = (ids[:, 2] + 1).clamp(max=10)
    ids[:, 3] = 2
    return MaskedBatch(ids, positions, targets)


def tiny_encoder(mixer: str) -> Encoder:
    torch.manual_seed(0)
    return Encoder(random_encoder(mixer, vocab_size=11, d_model=16).config)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@every_optimizer
def test_every_optimizer_learns_a_small_riddle_in_forty_steps(
    name: str, schedule: str, mixer: str
) -> None:
    encoder = tiny_encoder(mixer)
    # Noam's factor is at most warm-up^-1/2.
    optimizers = OPTIMIZERS[name](encoder, recipe(schedule=schedule, lr=0.02))
    losses = []
    for step in range(40):
        loss = masked_loss(encoder, riddle())
        loss.backward()
        optimizers.step(step)
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("shape", [(3, 16, 48), (3, 48, 16), (2, 24, 24)])
def test_orthogonalised_singular_values_are_near_one(shape: tuple[int, int, int]) -> None:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    x = u @ torch.diag_embed(torch.linspace(0.2, 1, s.shape[1]).expand_as(s)) @ vh
    found = torch.linalg.svdvals(orthogonalised(x))
    # The iteration lets them end within about 0.7 and 1.2; see its docstring.
    assert found.min() > 0.6
    assert found.max() < 1.25


def test_orthogonalising_keeps_the_directions_of_each_matrix() -> None:
    x = torch.randn(3, 16, 48, generator=torch.Generator().manual_seed(0))
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    turned = u.mT @ orthogonalised(x) @ vh.mT
    off_diagonal = turned - torch.diag_embed(turned.diagonal(dim1=1, dim2=2))
    assert off_diagonal.abs().max() < 1e-4  # float32 through five quintic steps
    assert (turned.diagonal(dim1=1, dim2=2) > 0).all()


def test_the_scale_of_a_matrix_does_not_matter_and_zero_stays_zero() -> None:
    x = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(orthogonalised(1e3 * x), orthogonalised(x), rtol=0, atol=1e-4)
    assert not orthogonalised(torch.zeros(1, 8, 8)).any()


def matrices(*shapes: tuple[int, int]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in shapes]
    for parameter in made:
        parameter.grad = torch.randn(*parameter.shape, generator=generator)
    return made


def moved(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> list[Tensor]:
    """How far one step takes each parameter."""
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer.step()
    return [after.detach() - was for after, was in zip(parameters, before, strict=True)]


def test_the_first_step_of_muon_is_the_orthogonalised_gradient_times_the_rate() -> None:
    (wide, tall) = parameters = matrices((8, 24), (24, 8))
    steps = moved(Muon(parameters, lr=0.1), parameters)
    expected = [
        -0.1 * orthogonalised(wide.grad[None])[0],
        -0.1 * 3**0.5 * orthogonalised(tall.grad[None])[0],  # √(rows / columns)
    ]
    # Momentum scales the first gradient, which orthogonalising undoes up to rounding.
    for found, wanted in zip(steps, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def test_muon_moves_a_matrix_as_it_would_without_others_of_its_shape() -> None:
    together, alone = matrices((8, 24), (8, 24)), matrices((8, 24), (8, 24))[1:]
    _, step = moved(Muon(together, lr=0.1), together)
    (expected,) = moved(Muon(alone, lr=0.1), alone)
    torch.testing.assert_close(step, expected, rtol=0, atol=1e-6)  # rounding


def test_muon_remembers_gradients() -> None:
    (parameter,) = parameters = matrices((8, 24))
    optimizer = Muon(parameters, lr=0.1)
    moved(optimizer, parameters)
    before, parameter.grad = parameter.grad, torch.zeros_like(parameter)
    (step,) = moved(optimizer, parameters)
    torch.testing.assert_close(step, -0.1 * orthogonalised(before[None])[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("mixer", MIXERS)
def test_muon_takes_the_matrices_of_the_blocks_and_adamw_the_rest(mixer: str) -> None:
    encoder = random_encoder(mixer, vocab_size=11)
    # At a rate of 0 whatever Muon holds stands still.
    optimizers = OPTIMIZERS["muon"](encoder, recipe(muon_lr=0.0))
    before = {name: parameter.detach().clone() for name, parameter in encoder.named_parameters()}
    masked_loss(encoder, riddle()).backward()
    optimizers.step(4)
    after = dict(encoder.named_parameters())
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {
        name for name, p in before.items() if name.startswith("blocks.") and p.ndim == 2
    }


@every_optimizer
def test_a_step_forgets_the_gradients(name: str) -> None:
    encoder = tiny_encoder("mhsa")
    masked_loss(encoder, riddle()).backward()
    OPTIMIZERS[name](encoder, recipe()).step(0)
    assert all(parameter.grad is None for parameter in encoder.parameters())


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_step_has_the_rate_of_its_schedule(name: str) -> None:
    encoder = tiny_encoder("mhsa")
    masked_loss(encoder, riddle()).backward()
    before = encoder.head_bias.detach().clone()
    OPTIMIZERS[name](encoder, recipe(lr=0.01)).step(1)
    # Adam's first step is the rate, whatever the gradient; here 2/5 of the peak.
    steps = (encoder.head_bias - before).abs()[3:]
    torch.testing.assert_close(steps, torch.full_like(steps, 0.004), rtol=1e-3, atol=0)


def test_the_linear_schedule_rises_over_the_warm_up_and_falls_to_the_end() -> None:
    made = recipe(steps=20, warmup_steps=5)
    rates = [SCHEDULES["linear"](step, step / 20, made) for step in range(20)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == pytest.approx([(20 - step) / 15 for step in range(5, 20)])


def test_the_linear_schedule_without_warm_up_starts_at_the_peak() -> None:
    assert SCHEDULES["linear"](0, 0.0, recipe(warmup_steps=0)) == 1.0


def test_the_linear_schedule_of_a_budget_of_seconds_follows_the_clock() -> None:
    made = recipe(seconds=60.0, warmup_steps=5)
    rates = [SCHEDULES["linear"](100, used, made) for used in (0.0, 0.25, 1.0, 1.1)]
    assert rates == pytest.approx([1.0, 0.75, 0.0, 0.0])


def test_the_noam_schedule_rises_to_the_end_of_the_warm_up_and_falls_as_a_root() -> None:
    made = recipe(steps=100, warmup_steps=10)
    rates = [SCHEDULES["noam"](step, step / 100, made) for step in range(100)]
    assert rates[:10] == pytest.approx([t * 10**-1.5 for t in range(1, 11)])
    assert rates[9:] == pytest.approx([t**-0.5 for t in range(10, 101)])
    assert max(rates) == rates[9]


@pytest.mark.parametrize("mixer", MIXERS)
@every_optimizer
def test_an_optimizer_with_the_state_of_another_goes_on_as_it_would(name: str, mixer: str) -> None:
    encoder = tiny_encoder(mixer)
    optimizers = OPTIMIZERS[name](encoder, recipe())

    def step(encoder: Encoder, optimizers: Optimizers, i: int) -> None:
        masked_loss(encoder, riddle()).backward()
        optimizers.step(i)

    for i in range(3):
        step(encoder, optimizers, i)
    copy = tiny_encoder(mixer)
    copy.load_state_dict(encoder.state_dict())
    copied = OPTIMIZERS[name](copy, recipe())
    copied.load_state({name: value.clone() for name, value in optimizers.state().items()})
    step(encoder, optimizers, 3)
    step(copy, copied, 3)
    pairs = zip(encoder.parameters(), copy.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
