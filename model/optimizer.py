"""How weights move: AdamW, Adam or Muon, and how the rate rises and falls."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from model.config import Recipe, check_choice
from model.encoder import Encoder


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal: every direction of a matrix moves by the same amount.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". The
    matrices of one shape are orthogonalised together, as one batch.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(list(matrices), {"lr": lr, "momentum": momentum})
        self._dtype = dtype  # of the orthogonalisation, which bf16 serves as well

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure here
        """Move every matrix once."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                momentum = self._momentum(parameters, group["momentum"])
                update = orthogonalised(momentum.to(self._dtype)).to(momentum.dtype)
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                torch._foreach_add_([*parameters], list(update), alpha=-group["lr"] * scale)

    def _momentum(self, parameters: list[nn.Parameter], momentum: float) -> Tensor:
        """Nesterov momentum of matrices of one shape, stacked."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        averages = [
            self.state[parameter].setdefault("average", torch.zeros_like(parameter))
            for parameter in parameters
        ]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        return torch.stack(torch._foreach_lerp(gradients, averages, momentum))


def orthogonalised(
    matrices: Float[Tensor, "n rows columns"], *, steps: int = 5
) -> Float[Tensor, "n rows columns"]:
    """About U·Vᵀ of each matrix's U·S·Vᵀ, by a quintic Newton-Schulz iteration.

    The coefficients are Jordan's: they let singular values end anywhere in about 0.7 … 1.2, in
    exchange for getting there in five steps.
    """
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if wide else x.mT


class Optimizers:
    """The optimizers of one run, under one schedule."""

    def __init__(self, parts: list[torch.optim.Optimizer], *, recipe: Recipe) -> None:
        check_choice("schedule", recipe.schedule, SCHEDULES)
        self._parts = parts
        self._peaks = [[group["lr"] for group in part.param_groups] for part in parts]
        self._recipe = recipe

    def step(self, step: int, *, used: float | None = None) -> None:
        """Move the weights by this step's rate and forget their gradients.

        Args:
            step: Counted from 0.
            used: Share of the budget that is used up, if that is time; else the steps tell.
        """
        used = step / self._recipe.steps if used is None else used
        scale = SCHEDULES[self._recipe.schedule](step, used, self._recipe)
        for part, peaks in zip(self._parts, self._peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * scale
            part.step()
            part.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """What the optimizers remember of past gradients, by name."""
        return {
            f"{i}.{parameter}.{name}": value
            for i, part in enumerate(self._parts)
            for parameter, entry in part.state_dict()["state"].items()
            for name, value in entry.items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The reverse of `state`, for the same encoder and recipe."""
        entries: list[dict[int, dict[str, Tensor]]] = [{} for _ in self._parts]
        for key, value in state.items():
            i, parameter, name = key.split(".")
            entries[int(i)].setdefault(int(parameter), {})[name] = value
        for part, found in zip(self._parts, entries, strict=True):
            part.load_state_dict(
                {"state": found, "param_groups": part.state_dict()["param_groups"]}
            )


def linear_schedule(step: int, used: float, recipe: Recipe) -> float:
    """Up over the warm-up, then straight down to zero at the end of the budget."""
    rise = (step + 1) / max(1, recipe.warmup_steps)
    risen = 0.0 if recipe.seconds else min(recipe.warmup_steps, recipe.steps - 1) / recipe.steps
    return min(1.0, rise, max(0.0, 1 - used) / (1 - risen))


def noam_schedule(step: int, used: float, recipe: Recipe) -> float:
    """`min(t^-½, t · warmup^-3/2)`. Source: Vaswani et al. 2017, section 5.3."""
    t = step + 1
    return float(min(t**-0.5, t * recipe.warmup_steps**-1.5))


def adam(encoder: Encoder, recipe: Recipe) -> Optimizers:
    """Plain Adam, without weight decay."""
    return _single(torch.optim.Adam(encoder.parameters(), lr=recipe.lr, fused=True), recipe)


def adamw(encoder: Encoder, recipe: Recipe) -> Optimizers:
    """AdamW over everything."""
    return _single(_adamw(list(encoder.parameters()), recipe), recipe)


def muon(encoder: Encoder, recipe: Recipe) -> Optimizers:
    """Muon for the matrices of the blocks, AdamW for embedding, head, norms and biases."""
    matrices = [p for p in encoder.blocks.parameters() if p.ndim == 2]
    taken = set(map(id, matrices))
    rest = [p for p in encoder.parameters() if id(p) not in taken]
    dtype = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
    return Optimizers(
        [Muon(matrices, lr=recipe.muon_lr, dtype=dtype), _adamw(rest, recipe)], recipe=recipe
    )


def _single(part: torch.optim.Optimizer, recipe: Recipe) -> Optimizers:
    return Optimizers([part], recipe=recipe)


def _adamw(parameters: list[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    settings: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0, "fused": True}
    return torch.optim.AdamW(parameters, lr=recipe.lr, **settings)


SCHEDULES: dict[str, Callable[[int, float, Recipe], float]] = {
    "linear": linear_schedule,
    "noam": noam_schedule,
}

OPTIMIZERS: dict[str, Callable[[Encoder, Recipe], Optimizers]] = {
    "adam": adam,
    "adamw": adamw,
    "muon": muon,
}
