"""Runs on a GPU: arrays bound to its memory, and its memory running out told from other failures.

Written from ONNX Runtime's documentation and issues; not yet run on a GPU.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Array = NDArray[np.generic]

# As CUDA, cuBLAS and ONNX Runtime's arena say it.
NO_MEMORY = re.compile(
    r"out of memory|failed to allocate memory|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
    re.IGNORECASE,
)


class OutOfMemory(RuntimeError):
    """The device has no memory left for a batch; a smaller one may fit."""


class Bound:
    """One session; inputs are copied to the device once, only the wanted outputs come back.

    Args:
        device: `cuda`; a test without a GPU binds to `cpu`.
    """

    def __init__(self, session: ort.InferenceSession, *, device: str = "cuda") -> None:
        self._session, self._device = session, device
        self._wanted = {argument.name for argument in session.get_inputs()}

    @property
    def each(self) -> Sequence["Bound"]:
        """Itself."""
        return [self]

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """The named outputs.

        Raises:
            OutOfMemory: The batch was too large.
        """
        binding = self._session.io_binding()
        try:
            for name, array in inputs.items():
                if name in self._wanted:
                    value = ort.OrtValue.ortvalue_from_numpy(
                        np.ascontiguousarray(array), self._device, 0
                    )
                    binding.bind_ortvalue_input(name, value)
            for name in outputs:
                binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding)
            arrays: list[Array] = binding.copy_outputs_to_cpu()
        except Exception as cause:
            if NO_MEMORY.search(str(cause)):
                raise OutOfMemory(str(cause).splitlines()[0]) from cause
            raise
        return arrays
