"""The proof of parity: it measures every output and refuses what is further off than float32."""

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from export.artefact import load_artefact
from export.graphs import FORMS, GRAPHS, export_graph
from export.parity import (
    FP32_BOUND,
    ParityError,
    cases,
    differences,
    measure,
    relative,
    rounding,
)
from export.weights import save_graphs, tensor_places
from model.config import PRESETS
from model.encoder import Encoder


@pytest.fixture
def encoder(artefact: Path, encoder_of: Callable[[str], Encoder]) -> Encoder:
    """A copy of the encoder that `artefact` was exported from, to be changed at will."""
    return copy.deepcopy(encoder_of(load_artefact(artefact).manifest["mixer"]))


def test_every_output_of_a_good_graph_is_measured_and_within_the_bound(
    artefact: Path, encoder: Encoder
) -> None:
    for variant in load_artefact(artefact).variants:
        parity = measure(artefact / variant.file, variant.graph, encoder)
        assert parity.to_torch.keys() == set(GRAPHS[variant.graph].outputs)
        assert all(0 <= difference <= FP32_BOUND for difference in parity.to_torch.values())
        assert 0 <= parity.alone_against_batched <= FP32_BOUND


def test_the_bound_is_the_designs() -> None:
    assert FP32_BOUND == 1e-5


def sharpened(encoder: Encoder, factor: float) -> Encoder:
    """A copy whose attention logits are larger, so that its softmax is nearer to a maximum."""
    encoder = copy.deepcopy(encoder)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            parameter *= factor if name.endswith("query.weight") else 1
    return encoder


def test_a_softmax_too_sharp_for_float32_is_held_to_what_float32_loses_in_torch(
    encoder_of: Callable[[str], Encoder], tmp_path: Path
) -> None:
    encoder = sharpened(encoder_of("mhsa"), 700)
    lost = rounding(encoder, "attention")["mixing_weights"]
    exported = export_graph(encoder, "attention", FORMS["decomposed"])
    save_graphs(encoder, {"attention.onnx": exported}, tmp_path)
    difference = measure(tmp_path / "attention.onnx", "attention", encoder).to_torch
    assert FP32_BOUND < difference["mixing_weights"] <= 4 * lost


def test_what_float32_loses_excuses_nothing_beyond_a_ten_thousandth(
    artefact_of: Callable[[str], Path], encoder_of: Callable[[str], Encoder]
) -> None:
    encoder = sharpened(encoder_of("mhsa"), 1e4)
    with pytest.raises(ParityError, match=r"at most 0\.0001$"):
        measure(artefact_of("mhsa") / "attention.onnx", "attention", encoder)


@pytest.mark.slow
def test_a_graph_is_refused_if_any_weight_of_its_encoder_was_changed_after_the_export(
    artefact: Path, encoder: Encoder
) -> None:
    generator = torch.Generator().manual_seed(0)
    for parameter in encoder.parameters():
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
        with pytest.raises(ParityError, match=r"^encode\.onnx: \w+ is .* off; at most 1e-05$"):
            measure(artefact / "encode.onnx", "encode", encoder)
        with torch.no_grad():
            parameter.copy_(before)
    measure(artefact / "encode.onnx", "encode", encoder)


def test_an_attention_graph_is_refused_if_its_encoder_was_changed_after_the_export(
    artefact: Path, encoder: Encoder
) -> None:
    with torch.no_grad():
        encoder.embedding.weight[:] *= 1.01
        encoder.embedding.weight[::2] *= 1.01
    with pytest.raises(ParityError, match="mixing_weights"):
        measure(artefact / "attention.onnx", "attention", encoder)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("torch_as_well", [False, True])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # inf - inf
def test_a_graph_that_answers_with_nan_or_infinity_is_refused_even_if_torch_does_so_too(
    artefact: Path, encoder: Encoder, tmp_path: Path, value: float, torch_as_well: bool
) -> None:
    broken = shutil.copytree(artefact, tmp_path / "broken")
    data = bytearray((broken / "weights.safetensors").read_bytes())
    start = tensor_places(bytes(data))["head_bias"].offset
    data[start : start + 4] = np.float32(value).tobytes()
    (broken / "weights.safetensors").write_bytes(data)
    if torch_as_well:
        with torch.no_grad():
            encoder.head_bias[0] = value
    with pytest.raises(ParityError, match="logprobs is inf off"):
        measure(broken / "encode.onnx", "encode", encoder)


@pytest.mark.parametrize("max_tokens", [1, 2, 32, 64])
def test_cases_are_single_short_ragged_and_longest_rows(max_tokens: int) -> None:
    config = PRESETS["tiny"].encoder_config(mixer="mhsa", vocab_size=70)
    shapes = []
    for case in cases(type(config)(**{**vars(config), "max_tokens": max_tokens})):
        ids, lengths, masks = case["input_ids"], case["lengths"], case["mask_positions"]
        shapes.append(ids.shape)
        assert {array.dtype for array in case.values()} == {np.dtype(np.int64)}
        assert lengths.min() >= 1
        assert lengths.max() == ids.shape[1] <= max_tokens
        assert ((ids >= 0) & (ids < 70)).all()
        assert (masks[:, 1] < lengths[masks[:, 0]]).all()
    longest = [(1, 1), (1, min(7, max_tokens)), (3, min(33, max_tokens)), (4, max_tokens)]
    assert shapes == longest


def test_a_difference_is_relative_to_the_largest_magnitude_or_one() -> None:
    assert relative(np.float32([0.5, 0.25]), np.float32([0.5, 0.5])) == 0.25
    assert relative(np.float32([8, 4]), np.float32([8, 8])) == 0.5
    assert relative(np.zeros((0, 4)), np.zeros((0, 4))) == 0
    assert relative(np.float32([math.nan]), np.float32([1])) == math.inf


def test_hidden_states_count_at_real_positions_only() -> None:
    inputs = {"input_ids": np.zeros((1, 3), np.int64), "lengths": np.array([2])}
    reference, found = np.zeros((1, 3, 2)), np.zeros((1, 3, 2))
    found[0, 2] = 7
    assert differences({"last_hidden": found}, {"last_hidden": reference}, inputs) == {
        "last_hidden": 0
    }
    found[0, 1] = 0.5
    assert differences({"last_hidden": found}, {"last_hidden": reference}, inputs) == {
        "last_hidden": 0.5
    }


def test_candidates_of_like_probability_may_stand_in_either_order_but_no_other_may() -> None:
    inputs = {"input_ids": np.zeros((1, 3), np.int64), "lengths": np.array([3])}
    logprobs = np.array([[-1.0, -2.0, -1.0]])
    reference = {
        "mask_logprobs": logprobs,
        "top_logprobs": np.array([[-1.0, -1.0]]),
        "top_ids": np.array([[0, 2]]),
    }
    swapped = reference | {"top_ids": np.array([[2, 0]])}
    wrong = reference | {"top_ids": np.array([[0, 1]])}
    assert differences(swapped, reference, inputs)["top_ids"] == 0
    assert differences(wrong, reference, inputs)["top_ids"] == 0.5
