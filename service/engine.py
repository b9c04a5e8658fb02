"""ONNX Runtime sessions of one artefact: arrays in, arrays out."""

import threading
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.artefact import Artefact, Variant
from service.providers import Provider, ProviderUnavailable

Array = NDArray[np.generic]


class Engine:
    """The graphs of an artefact on one provider.

    One session a graph, which any number of threads may run at once: each call uses one thread
    of its own, so that a batch never waits for a slower half.

    Raises:
        ProviderUnavailable: The session came up on another provider.
        export.artefact.InvalidArtefact: The artefact has no variant for this provider.
    """

    def __init__(self, artefact: Artefact, provider: Provider) -> None:
        self._artefact = artefact
        self.provider = provider
        self._lock = threading.Lock()
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._session("encode")

    def variant(self, graph: str) -> Variant:
        """The variant of a graph that runs here."""
        return self.provider.variant(self._artefact, graph)

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs of a graph."""
        session = self._session(graph)
        arrays: list[Array] = session.run(list(outputs), dict(inputs))
        return arrays

    def _session(self, graph: str) -> ort.InferenceSession:
        """A graph's session, made when it is first needed."""
        with self._lock:
            if graph not in self._sessions:
                self._sessions[graph] = self._open(self.variant(graph))
            return self._sessions[graph]

    def _open(self, variant: Variant) -> ort.InferenceSession:
        files = self._artefact.files
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors; a fallback is found below
        # Spinning burns three times the CPU between calls and slows the other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_external_initializers_from_files_in_memory(
            list(variant.files),
            [files[name] for name in variant.files],
            [len(files[name]) for name in variant.files],
        )
        wanted = [(self.provider.runtime_name, dict(self.provider.options))]
        if self.provider.name != "cpu":
            wanted.append(("CPUExecutionProvider", {}))  # shape arithmetic stays there
        session = ort.InferenceSession(files[variant.file], options, providers=wanted)
        session.disable_fallback()  # else a failed run goes on, silently, on the CPU
        active = session.get_providers()[0]
        if active != self.provider.runtime_name:
            raise ProviderUnavailable(
                f"device={self.provider.name}, but ONNX Runtime {ort.__version__} came up on "
                f"{active}: no working GPU, driver or CUDA library was found"
            )
        return session
