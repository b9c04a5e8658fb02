"""Proof that a graph says what the encoder says, in numbers that go into the manifest."""

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export import openvino
from export.graphs import GRAPHS
from model.config import EncoderConfig
from model.encoder import Encoder

Array = NDArray[Any]
Arrays = dict[str, Array]

FP32_BOUND = 1e-5
LARGEST_BOUND = 1e-4
PER_TOKEN = frozenset({"last_hidden", "last_hidden_state", "logits"})
PER_MASK = frozenset({"top_logprobs", "top_ids", "mask_logprobs"})


class ParityError(ValueError):
    """A graph's answers are further from torch's than its precision allows."""


@dataclass(frozen=True)
class Parity:
    """How far a graph is from torch, and from itself in other company.

    Attributes:
        to_torch: Largest difference of each output, over the larger of 1 and its magnitude.
        alone_against_batched: The same between each row alone and all rows in one batch.
    """

    to_torch: dict[str, float]
    alone_against_batched: float


def measure(path: Path, graph: str, encoder: Encoder) -> Parity:
    """Compare the graph at `path` with torch on single, short, ragged and longest rows.

    Raises:
        ParityError: Some output is further off than `FP32_BOUND`, and than float32 explains.
    """
    session = open_session(path)
    found = [(inputs, run(session, inputs)) for inputs in cases(encoder.config)]
    worst = _worst(
        differences(outputs, torch_outputs(encoder, graph, inputs), inputs)
        for inputs, outputs in found
    )
    alone = alone_against_batched(session, found[-1][0])
    bounds = dict.fromkeys(worst, FP32_BOUND)
    if max(alone, *worst.values()) > FP32_BOUND:
        bounds = {name: _bound(lost) for name, lost in rounding(encoder, graph).items()}
    measured = [(name, difference, bounds[name]) for name, difference in worst.items()]
    for name, difference, bound in [
        *measured,
        ("alone against batched", alone, max(bounds.values())),
    ]:
        if not difference <= bound:
            raise ParityError(f"{path.name}: {name} is {difference:.1e} off; at most {bound:.2g}")
    return Parity(worst, alone)


def rounding(encoder: Encoder, graph: str) -> dict[str, float]:
    """How far torch's float32 itself is from float64, by output, on the same rows."""
    exact = copy.deepcopy(encoder).double()
    return _worst(
        differences(
            torch_outputs(encoder, graph, inputs), torch_outputs(exact, graph, inputs), inputs
        )
        for inputs in cases(encoder.config)
    )


def _bound(lost: float) -> float:
    """What two results may differ by, where torch's is `lost` from the exact one.

    A trained softmax is sharp: a logit of 100 that is off in its last bit moves a weight by 1e-5.
    Twice, as the graph's sums round as torch's do; twice again, as the worst of a few rows is met
    in one and not in the other.
    """
    return min(max(FP32_BOUND, 4 * lost), LARGEST_BOUND)


def _worst(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for found in several:
        for name, difference in found.items():
            worst[name] = max(worst.get(name, 0.0), difference)
    return worst


def open_session(path: Path) -> ort.InferenceSession:
    """A CPU session over a graph whose weights lie beside it."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def session_of(path: Path, precision: str) -> ort.InferenceSession:
    """A session over a graph in the precision that its variant states.

    Raises:
        ValueError: This machine does not compute in it.
    """
    if precision != "bf16":
        return open_session(path)
    if reason := openvino.unusable():
        raise ValueError(f"bf16 has to be measured where it runs: {reason}")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_provider_for_devices(openvino.devices(), openvino.OPTIONS)
    return ort.InferenceSession(path, options)


def run(session: ort.InferenceSession, inputs: Mapping[str, Array]) -> Arrays:
    """All outputs by name; inputs the graph does not have are left out."""
    wanted = {argument.name for argument in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    feeds = {name: array for name, array in inputs.items() if name in wanted}
    return dict(zip(names, session.run(names, feeds), strict=True))


@torch.no_grad()
def torch_outputs(encoder: Encoder, graph: str, inputs: Arrays) -> Arrays:
    """What the graph must say, from torch in the encoder's precision."""
    module = GRAPHS[graph](encoder)
    outputs = module(*(torch.from_numpy(inputs[name]) for name in module.inputs))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    names = GRAPHS[graph].outputs
    return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}


def cases(config: EncoderConfig) -> list[Arrays]:
    """Inputs of shapes (1,1), (1,7), ragged (3,33) and ragged (4,longest)."""
    longest = config.max_tokens
    lengths = [[1], [min(7, longest)], [min(33, longest), 9, 1], [longest, 17, 2, longest // 2 + 1]]
    random = np.random.default_rng(0)
    return [_case([min(n, longest) for n in row], config, random) for row in lengths]


def _case(lengths: list[int], config: EncoderConfig, random: np.random.Generator) -> Arrays:
    """Random ids, at padding too: what stands there must not matter."""
    ids = random.integers(0, config.vocab_size, (len(lengths), max(lengths)))
    masks = [[row, n // 2] for row, n in enumerate(lengths)]
    return {
        "input_ids": ids.astype(np.int64),
        "lengths": np.array(lengths, np.int64),
        "attention_mask": (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64),
        "mask_positions": np.array(masks, np.int64),
    }


def differences(found: Arrays, reference: Arrays, inputs: Arrays) -> dict[str, float]:
    """Largest difference of each output at real positions, relative to its magnitude or 1."""
    real = np.arange(inputs["input_ids"].shape[1]) < inputs["lengths"][:, None]
    worst = {}
    for name, expected in reference.items():
        if name == "top_ids":
            continue
        actual = found[name]
        if name in PER_TOKEN:
            actual, expected = actual[real], expected[real]
        worst[name] = relative(actual, expected)
    if "top_ids" in found:  # ties may stand in either order: look the found ids up instead
        looked_up = np.take_along_axis(reference["mask_logprobs"], found["top_ids"], axis=1)
        worst["top_ids"] = relative(found["top_logprobs"], looked_up)
    return worst


def relative(found: Array, expected: Array) -> float:
    """Largest absolute difference over the larger of 1 and the largest expected magnitude.

    Infinite where either has a NaN: `max` over several differences would lose one.
    """
    if not expected.size:
        return 0.0
    scale = max(1.0, float(np.abs(expected).max()))
    worst = float(np.abs(found.astype(np.float64) - expected).max() / scale)
    return math.inf if math.isnan(worst) else worst


def alone_against_batched(session: ort.InferenceSession, inputs: Arrays) -> float:
    """Largest difference between each row in its batch and the same row by itself."""
    together, worst = run(session, inputs), 0.0
    for row, length in enumerate(inputs["lengths"]):
        masks = inputs["mask_positions"][:, 0] == row
        columns = inputs["mask_positions"][masks, 1]
        alone: Arrays = {
            "input_ids": inputs["input_ids"][row : row + 1, :length],
            "lengths": np.array([length], np.int64),
            "attention_mask": np.ones((1, length), np.int64),
            "mask_positions": np.stack([np.zeros_like(columns), columns], axis=1),
        }
        for name, found in run(session, alone).items():
            if name == "top_ids":
                continue
            expected = together[name][masks if name in PER_MASK else slice(row, row + 1)]
            if name in PER_TOKEN:
                expected = expected[:, :length]
            if name == "mixing_weights":
                expected = expected[..., :length, :length]
            worst = max(worst, relative(found, expected))
    return worst
