"""Arrays in a manifest's JSON."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(array: NDArray[np.generic]) -> dict[str, Any]:
    """An array as JSON: shape, type and little-endian bytes in base64."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": data}


def unpacked(array: Mapping[str, Any]) -> NDArray[Any]:
    """An array from what `packed` gave."""
    data = np.frombuffer(base64.b64decode(array["data"]), array["dtype"])
    return data.reshape(array["shape"])
