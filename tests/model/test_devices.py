"""Where training runs: what is decided for a device, and seeds of a step."""

from pathlib import Path

import pytest
import torch

from model.config import Recipe
from model.devices import Workers, seed_step, settled, workers

CPU = torch.device("cpu")


def test_one_process_is_first_of_one() -> None:
    with workers("cpu") as here:
        assert (here.rank, here.n, here.device, here.first) == (0, 1, CPU, True)
        assert here.total([1.0, 2.0]) == [1.0, 2.0]
        here.wait()


def test_an_unknown_device_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="device='tpu'; one of: auto, cpu, cuda"), workers("tpu"):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_cuda_without_cuda_is_refused() -> None:
    with pytest.raises(ValueError, match="torch finds no CUDA device"), workers("cuda"):
        pass


def test_what_is_left_to_the_device_is_decided_before_the_run() -> None:
    made = settled(Recipe(), CPU)
    assert made.precision in {"fp32", "bf16"}
    assert made.compile in {"on", "off"}
    assert settled(made, CPU) == made


def test_a_short_run_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled(Recipe(steps=10), CPU).compile == "off"


def test_without_a_compiler_blocks_are_as_written_unless_that_was_forbidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert settled(Recipe(steps=100_000), CPU).compile == "off"
    with pytest.raises(ValueError, match="compile='on' needs a C"):
        settled(Recipe(compile="on"), CPU)


def test_chance_in_a_step_hangs_on_seed_step_and_rank_only() -> None:
    def drawn(*place: int) -> float:
        torch.rand(5)
        seed_step(*place)
        return torch.rand(1).item()

    assert drawn(0, 1, 0) == drawn(0, 1, 0)
    assert len({drawn(0, 1, 0), drawn(1, 1, 0), drawn(0, 2, 0), drawn(0, 1, 1)}) == 4


def test_the_place_among_several_is_read_from_the_launcher() -> None:
    assert Workers(rank=1, n=2).first is False
