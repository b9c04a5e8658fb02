"""ONNX Runtime sessions of one artefact: arrays in, arrays out."""

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import openvino
from export.artefact import Artefact, InvalidArtefact, Variant
from export.references import external_tensors
from service import cuda
from service.providers import Provider, ProviderUnavailable

Array = NDArray[np.generic]

CALM = 3  # calls


class Runs(Protocol):
    """A graph that any number of threads may run."""

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs."""


class Sessions(Runs, Protocol):
    """The same by one session or several, of which any may answer."""

    @property
    def each(self) -> Sequence[Runs]:
        """All of them, so that each can be proven and warmed up."""


class Engine:
    """The graphs of an artefact on one provider; `attention` is opened when it is first needed.

    Args:
        n_threads: Cores to use on a CPU; 0 takes all that the process may run on.

    Raises:
        ProviderUnavailable: The session came up on another provider.
        export.artefact.InvalidArtefact: The artefact has no variant for this provider.
    """

    def __init__(self, artefact: Artefact, provider: Provider, *, n_threads: int = 0) -> None:
        self._artefact = artefact
        self.provider = provider
        self.n_threads = n_threads or len(os.sched_getaffinity(0))
        self._lock = threading.Lock()
        self._opened: dict[str, Sessions] = {}
        for graph in ("encode", "attention"):
            self.variant(graph)
        self.sessions("encode")

    @property
    def opened(self) -> list[str]:
        """The graphs that have sessions."""
        return list(self._opened)

    @property
    def n_workers(self) -> int:
        """Batches that run at once."""
        return self.provider.n_workers or self.n_threads

    def variant(self, graph: str) -> Variant:
        """The variant of a graph that runs here."""
        return self.provider.variant(self._artefact, graph)

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs of a graph."""
        return self.sessions(graph).run(inputs, outputs)

    def sessions(self, graph: str) -> Sessions:
        """Those of a graph."""
        opened = self._opened.get(graph)
        if opened is None:
            with self._lock:
                opened = self._opened.get(graph) or self._open(graph)
                self._opened[graph] = opened
        return opened

    def _open(self, graph: str) -> Sessions:
        variant = self.variant(graph)
        if graph == "attention" and self.provider.name != "cuda":
            # Its time goes into copying its output: packed weights are not worth their memory.
            return Shared(self._on_cpu(variant, 1, packed=False))
        if self.provider.name == "openvino":
            return Pool([self._on_openvino(variant) for _ in range(self.n_threads)])
        if self.provider.name == "cuda":
            return cuda.Bound(self._on_cuda(variant))
        one = self._on_cpu(variant, 1)
        if self.n_threads == 1:
            return Shared(one)
        return LoneOrShared(one, self._on_cpu(variant, self.n_threads))

    def _on_cpu(
        self, variant: Variant, n_threads: int, *, packed: bool = True
    ) -> ort.InferenceSession:
        options = self._options(variant, n_threads)
        if not packed:
            options.add_session_config_entry("session.disable_prepacking", "1")
        return self._session(variant, options, [("CPUExecutionProvider", {})])

    def _on_cuda(self, variant: Variant) -> ort.InferenceSession:
        wanted = [(self.provider.runtime_name, dict(self.provider.options))]
        wanted.append(("CPUExecutionProvider", {}))  # shape arithmetic stays there
        return self._session(variant, self._options(variant, 1), wanted)

    def _on_openvino(self, variant: Variant) -> ort.InferenceSession:
        options = self._options(variant, 1)
        try:
            options.add_provider_for_devices(openvino.devices(), openvino.OPTIONS)
            return self._session(variant, options, None)
        except ProviderUnavailable:
            raise
        except Exception as cause:  # whatever the plugin raises: the CPU's provider is next
            raise ProviderUnavailable(f"openvino: {cause}".splitlines()[0]) from cause

    def _options(self, variant: Variant, n_threads: int) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = n_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors; a fallback is found below
        # Spinning burns three times the CPU between calls and slows the other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        files = self._artefact.files
        options.add_external_initializers_from_files_in_memory(
            list(variant.files),
            [files[name] for name in variant.files],
            [len(files[name]) for name in variant.files],
        )
        return options

    def _session(
        self,
        variant: Variant,
        options: ort.SessionOptions,
        providers: Sequence[tuple[str, Mapping[str, object]]] | None,
    ) -> ort.InferenceSession:
        graph = self._artefact.files[variant.file]
        kept = self._shared_weights(graph, options) if providers is not None else []
        session = ort.InferenceSession(graph, options, providers=providers)
        session.maskwright_weights = kept  # they live as long as the session that reads them
        session.disable_fallback()  # else a failed run goes on, silently, on the CPU
        wanted = self.provider.runtime_name if providers is None else providers[0][0]
        active = session.get_providers()[0]
        if active != wanted:
            raise ProviderUnavailable(
                f"device={self.provider.name}, but ONNX Runtime {ort.__version__} came up on "
                f"{active}: no working GPU, driver or CUDA library was found"
            )
        return session

    def _shared_weights(self, graph: bytes, options: ort.SessionOptions) -> list[ort.OrtValue]:
        """Let a session read weights where the artefact holds them: else it copies all of them.

        Raises:
            InvalidArtefact: A tensor is not where the graph says.
        """
        values = []
        for tensor in external_tensors(graph):
            data = np.frombuffer(self._artefact.files[tensor.file], np.uint8)
            part = data[tensor.offset : tensor.offset + tensor.length]
            try:
                array = part.view(tensor.dtype).reshape(tensor.shape)
            except ValueError as cause:
                raise InvalidArtefact(f"{tensor.name} does not fit {tensor.file}") from cause
            values.append(ort.OrtValue.ortvalue_from_numpy(array))
            options.add_initializer(tensor.name, values[-1])
        return values


class Shared:
    """One session, which any number of threads run at once."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    @property
    def each(self) -> Sequence[Runs]:
        """Itself."""
        return [self]

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs."""
        arrays: list[Array] = self._session.run(list(outputs), dict(inputs))
        return arrays


class LoneOrShared:
    """A session of one thread a call, and one on every core for calls that come one at a time.

    A lone call on one thread would leave cores idle. One on every core that is joined by another
    has more threads than there are cores, and waits for the one that is kept waiting: so it takes
    `CALM` calls in a row that met no other until one is counted as lone.
    """

    def __init__(self, one: ort.InferenceSession, every: ort.InferenceSession) -> None:
        self._one, self._every = Shared(one), Shared(every)
        self._lock, self._n_running, self._n_calm = threading.Lock(), 0, CALM

    @property
    def each(self) -> Sequence[Runs]:
        """Both."""
        return [self._every, self._one]

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs."""
        with self._lock:
            self._n_calm = 0 if self._n_running else self._n_calm + 1
            lone = self._n_calm > CALM
            self._n_running += 1
        try:
            return (self._every if lone else self._one).run(inputs, outputs)
        finally:
            with self._lock:
                self._n_running -= 1


class Pool:
    """Sessions that each run one call at a time."""

    def __init__(self, sessions: Sequence[ort.InferenceSession]) -> None:
        self._idle: queue.SimpleQueue[Shared] = queue.SimpleQueue()
        self.each = [Shared(session) for session in sessions]
        for shared in self.each:
            self._idle.put(shared)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs."""
        session = self._idle.get()
        try:
            return session.run(inputs, outputs)
        finally:
            self._idle.put(session)
