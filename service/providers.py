"""Where graphs run: execution providers, and the variants each takes, best first."""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnxruntime as ort

from export.artefact import Artefact, InvalidArtefact, Variant


class ProviderUnavailable(RuntimeError):
    """The device that was asked for cannot run graphs here."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One execution provider.

    Attributes:
        name: As settings, metrics and manifests call it.
        runtime_name: As ONNX Runtime calls it.
        wants: (form, precision) it takes, best first.
        options: Of the provider itself.
        max_batch_cost: Padded tokens in a batch: on a CPU throughput peaks at some 512; a GPU
            wants to be filled.
        n_workers: Batches that run at once; 0 is one per core.
    """

    name: str
    runtime_name: str
    wants: tuple[tuple[str, str], ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    max_batch_cost: float
    n_workers: int

    def variant(self, artefact: Artefact, graph: str) -> Variant:
        """The best variant of a graph for this provider.

        Raises:
            InvalidArtefact: There is none.
        """
        offered = [v for v in artefact.variants if v.graph == graph and self.name in v.providers]
        for form, precision in self.wants:
            for variant in offered:
                if (variant.form, variant.precision) == (form, precision):
                    return variant
        raise InvalidArtefact(f"{artefact.name} has no {graph} graph for {self.name}")


def candidates(device: str) -> list[Provider]:
    """Providers to try for a `device` setting, in order; the first that works serves.

    Raises:
        ProviderUnavailable: CUDA is asked for and this onnxruntime was built without it.
    """
    # Says what the package was built with, not what the machine has: a session must show that.
    built = PROVIDERS["cuda"].runtime_name in ort.get_available_providers()
    if device == "cuda" and not built:
        raise ProviderUnavailable(
            "device=cuda, but this onnxruntime has no CUDA provider; "
            "install maskwright[serve-gpu] instead of maskwright[serve]"
        )
    if device == "cpu" or not built:
        return [PROVIDERS["cpu"]]
    _preload_cuda()
    return [PROVIDERS["cuda"]] if device == "cuda" else [PROVIDERS["cuda"], PROVIDERS["cpu"]]


def _preload_cuda() -> None:
    """Load CUDA's libraries from their wheels; the session's providers tell whether it worked."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints failures and raises nothing
        ort.preload_dlls()


PROVIDERS: dict[str, Provider] = {
    "cuda": Provider(
        name="cuda",
        runtime_name="CUDAExecutionProvider",
        wants=(("attention-op", "fp16"), ("attention-op", "fp32"), ("decomposed", "fp32")),
        # Grow the arena by what is asked: doubling strands memory when shapes vary.
        options={"arena_extend_strategy": "kSameAsRequested"},
        max_batch_cost=16384,
        n_workers=1,  # one stream a session: more callers only queue inside
    ),
    "cpu": Provider(
        name="cpu",
        runtime_name="CPUExecutionProvider",
        wants=(("attention-op", "fp32"), ("decomposed", "fp32")),
        max_batch_cost=512,
        n_workers=0,
    ),
}
