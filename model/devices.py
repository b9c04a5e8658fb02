"""Where training runs: one process or several, on which device, in which precision."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model.config import Recipe, check_choice

DEVICES = ("auto", "cpu", "cuda")
# Compiling takes some seconds for each row length, and saves about a fifth of a step.
TOKENS_THAT_EARN_COMPILING = 1_000_000


@dataclass(frozen=True)
class Workers:
    """The processes that train together, and this one among them.

    Attributes:
        rank: This process, from 0; the first one writes files and speaks.
        n: How many there are.
        device: What this one computes on.
    """

    rank: int = 0
    n: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 a constant

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def total(self, values: list[float]) -> list[float]:
        """Each value summed over the processes."""
        if self.n == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(tensor)
        return [float(value) for value in tensor]

    def wait(self) -> None:
        """Until every process is here."""
        if self.n > 1:
            torch.distributed.barrier()

    def shared(self, module: nn.Module) -> nn.Module:
        """`module`, its gradients averaged over the processes."""
        if self.n == 1:
            return module
        return DistributedDataParallel(module, broadcast_buffers=False)

    def without_sync(self, module: nn.Module, *, last: bool) -> Any:
        """A context in which gradients stay local, until the last part of a step."""
        if isinstance(module, DistributedDataParallel) and not last:
            return module.no_sync()
        return nullcontext()


@contextmanager
def workers(device: str = "auto") -> Iterator[Workers]:
    """This process's place: alone, or as torchrun says.

    Each process has a whole copy of the encoder (DDP). Sharding it as well (FSDP) would save
    nothing: the largest preset and its optimizer take some 50 MB.

    Raises:
        ValueError: `device` is `cuda` and there is none.
    """
    check_choice("device", device, DEVICES)
    rank, n = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        raise ValueError("device='cuda' and torch finds no CUDA device; one of: auto, cpu")
    on_cuda = found and device != "cpu"
    local = int(os.environ.get("LOCAL_RANK", 0))
    chosen = torch.device("cuda", local) if on_cuda else torch.device("cpu")
    if on_cuda:
        torch.cuda.set_device(chosen)
    if n == 1:
        yield Workers(device=chosen)
        return
    torch.distributed.init_process_group("nccl" if on_cuda else "gloo")
    try:
        yield Workers(rank, n, chosen)
    finally:
        torch.distributed.destroy_process_group()


def settled(recipe: Recipe, device: torch.device) -> Recipe:
    """The recipe with every `auto` decided for a device, so that a resumed run goes the same way.

    Raises:
        ValueError: It asks for compiled blocks and there is no compiler.
    """
    precision, compiled = recipe.precision, recipe.compile
    if precision == "auto":
        precision = "bf16" if quick_at_bf16(device) else "fp32"
    can_compile = device.type == "cuda" or bool(shutil.which("c++") or shutil.which("g++"))
    if compiled == "on" and not can_compile:
        raise ValueError("compile='on' needs a C++ compiler (c++ or g++); there is none")
    if compiled == "auto":
        long = bool(recipe.seconds) or (
            recipe.steps * recipe.batch_tokens >= TOKENS_THAT_EARN_COMPILING
        )
        compiled = "on" if can_compile and long else "off"
    return replace(recipe, precision=precision, compile=compiled)


def quick_at_bf16(device: torch.device) -> bool:
    """Whether products in bf16 beat fp32 there: without AMX or AVX-512 they are far slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    flags = torch.cpu.get_capabilities()
    return bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))


def cast(recipe: Recipe, device: torch.device) -> Any:
    """A context in which products run in the recipe's precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16")


def uncompiled(recipe: Recipe) -> Any:
    """A context in which compiled blocks run as written: for shapes that come once."""
    if recipe.compile != "on":
        return nullcontext()
    return torch.compiler.set_stance("force_eager")  # loads the compiler, which takes seconds


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed what dropout draws in one step, so that it does not hang on what was drawn before."""
    mixed = np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)
    torch.manual_seed(int(mixed[0]))
