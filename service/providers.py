"""Where graphs run: execution providers, and the variants each takes, best first."""

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnxruntime as ort

from export import openvino
from export.artefact import Artefact, InvalidArtefact, Variant
from service.scheduler import CALL_COST


class NoVariant(InvalidArtefact):
    """The artefact has no graph that a provider takes."""


class ProviderUnavailable(RuntimeError):
    """The device that was asked for cannot run graphs here."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One execution provider.

    Attributes:
        name: As settings, metrics and manifests call it.
        runtime_name: As ONNX Runtime calls it.
        forms: Of graphs, best first.
        precisions: That it runs, all of them.
        auto: Those that it takes unasked, best first. Fixed, never timed, so that two replicas on
            like hosts give the same answers.
        options: Of the provider itself.
        max_batch_cost: Padded tokens in a batch: on a CPU throughput peaks at some 256; a GPU
            wants to be filled.
        call_cost: Padded tokens that a call costs beside its texts.
        n_workers: Batches that run at once; 0 is one per core.
        length_step, mask_step: Lengths and masks of a batch are rounded up to multiples of it.
        length_buckets: Lengths are rounded up to these instead, as far as they go.
    """

    name: str
    runtime_name: str
    forms: tuple[str, ...]
    precisions: tuple[str, ...]
    auto: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    max_batch_cost: float
    call_cost: float
    n_workers: int
    length_step: int
    mask_step: int
    length_buckets: tuple[int, ...] = ()

    def variant(self, artefact: Artefact, graph: str) -> Variant:
        """The best variant of a graph for this provider; mixing weights are always fp32.

        Raises:
            NoVariant: There is none.
        """
        offered = [v for v in artefact.variants if v.graph == graph and self.name in v.providers]
        for precision in self.auto if graph == "encode" else ("fp32",):
            for form in self.forms:
                for variant in offered:
                    if (variant.form, variant.precision) == (form, precision):
                        return variant
        wanted = " or ".join(self.auto) if graph == "encode" else "fp32"
        raise NoVariant(
            f"{artefact.name} has no {graph} graph for {self.name} in {wanted}; where it has "
            "others, maskwright-export --add PRECISION DIRECTORY adds one"
        )


def candidates(device: str, precision: str = "auto", *, gpu_memory_mib: int = 0) -> list[Provider]:
    """Providers to try for the settings, in order; the first that works serves.

    Args:
        gpu_memory_mib: Most that a session's arena on a GPU may take; 0 for any.

    Raises:
        ProviderUnavailable: None of them can be had here.
    """
    tried = ["cuda", "openvino", "cpu"]
    if device != "auto":
        tried = ["openvino", "cpu"] if device == "cpu" else [device]
    found, reasons = [], []
    for name in tried:
        provider, reason = PROVIDERS[name], UNUSABLE.get(name, lambda: None)
        if precision not in ("auto", *provider.precisions):
            reasons.append(f"{name} does not run {precision}")
        elif (why := reason()) is not None:
            reasons.append(why)
        elif precision == "auto":
            found.append(provider)
        else:
            found.append(replace(provider, auto=(precision,)))
    if not found:
        raise ProviderUnavailable(f"device={device}, precision={precision}: {'; '.join(reasons)}")
    if found[0].name == "cuda":
        _preload_cuda()
        if gpu_memory_mib:
            limit = {"gpu_mem_limit": gpu_memory_mib * 2**20}
            found[0] = replace(found[0], options={**found[0].options, **limit})
    return found


def _no_cuda() -> str | None:
    # Says what the package was built with, not what the machine has: a session must show that.
    if PROVIDERS["cuda"].runtime_name in ort.get_available_providers():
        return None
    return (
        "this onnxruntime has no CUDA provider; install maskwright[serve-gpu] instead of "
        "maskwright[serve]"
    )


def _preload_cuda() -> None:
    """Load CUDA's libraries from their wheels; the session's providers tell whether it worked."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints failures and raises nothing
        ort.preload_dlls()


PROVIDERS: dict[str, Provider] = {
    "cuda": Provider(
        name="cuda",
        runtime_name="CUDAExecutionProvider",
        forms=("attention-op", "decomposed"),
        precisions=("fp16", "fp32"),
        auto=("fp16", "fp32"),
        # Grow the arena by what is asked: doubling strands memory when shapes vary.
        options={"arena_extend_strategy": "kSameAsRequested"},
        max_batch_cost=16384,
        call_cost=2048,  # a guess: small launches leave a GPU idle
        n_workers=1,  # one stream a session: more callers only queue inside
        length_step=8,
        mask_step=8,
        length_buckets=(16, 32, 64, 128, 256, 512),  # few shapes, or the arena fragments
    ),
    "openvino": Provider(
        name="openvino",
        runtime_name="OpenVINOExecutionProvider",
        forms=("decomposed",),  # parts of the other form would fall back
        precisions=("bf16",),
        auto=("bf16",),
        max_batch_cost=512,
        call_cost=16,
        n_workers=0,
        length_step=8,  # each new shape costs 5 to 10 ms once
        mask_step=8,
    ),
    "cpu": Provider(
        name="cpu",
        runtime_name="CPUExecutionProvider",
        forms=("attention-op", "decomposed"),
        precisions=("fp32", "int8"),
        auto=("fp32",),  # int8 by name only: fp32 is near exact
        # Measured on an EPYC without AVX-512, d 256 x 6: 3 ms a call and 0.16 ms a token; and for
        # 128 texts sorted by length 193, 186, 194 and 242 us a token in batches of 128, 256, 512
        # and 1,024 padded tokens, 262 one by one.
        max_batch_cost=256,
        call_cost=CALL_COST,
        n_workers=0,
        length_step=2,
        mask_step=1,  # a row of the vocabulary head costs as much as several tokens
    ),
}

# Why a provider cannot be used at all on this host, if that can be told before a session is made.
UNUSABLE: dict[str, Callable[[], str | None]] = {"cuda": _no_cuda, "openvino": openvino.unusable}
