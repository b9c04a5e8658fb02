"""The weights file: each tensor once, under the encoder's name, and nowhere else."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from safetensors.numpy import load, load_file

from export.artefact import load_artefact
from export.weights import WeightsFile, tensor_places
from model.encoder import Encoder
from tests.conftest import random_encoder

Array = NDArray[np.generic]

LARGE = 256  # bytes; anything smaller may stay in the graphs


def tensors_of(encoder: Encoder) -> dict[str, Array]:
    """Parameters and buffers by name."""
    named = [*encoder.named_parameters(), *encoder.named_buffers()]
    return {name: tensor.detach().numpy() for name, tensor in named}


def digest(array: Array) -> str:
    """A hash of the shape and bytes of an array."""
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


@pytest.fixture
def encoder(artefact: Path, encoder_of: Callable[[str], Encoder]) -> Encoder:
    """The encoder that `artefact` was exported from."""
    return encoder_of(load_artefact(artefact).manifest["mixer"])


def test_every_tensor_in_the_file_is_the_encoders_of_that_name_or_its_transpose(
    artefact: Path, encoder: Encoder
) -> None:
    own = tensors_of(encoder)
    for name, array in load_file(artefact / "weights.safetensors").items():
        expected = own[name.removesuffix(".transposed")]
        np.testing.assert_array_equal(array, expected.T if "transposed" in name else expected)


def test_every_large_tensor_of_the_encoder_is_in_the_file_once(
    artefact: Path, encoder: Encoder
) -> None:
    stored = [digest(array) for array in load_file(artefact / "weights.safetensors").values()]
    assert len(set(stored)) == len(stored)
    for name, array in tensors_of(encoder).items():
        if array.nbytes >= LARGE:
            either_way = {digest(array), digest(np.ascontiguousarray(array.T))}
            assert sum(each in either_way for each in stored) == 1, name


def test_the_places_of_tensors_are_those_that_safetensors_reads(artefact: Path) -> None:
    data = (artefact / "weights.safetensors").read_bytes()
    arrays, places = load(data), tensor_places(data)
    assert places.keys() == arrays.keys()
    for name, place in places.items():
        assert data[place.offset : place.offset + place.length] == arrays[name].tobytes()


def test_graphs_keep_no_large_tensor_and_read_the_encoders_from_the_weights_file(
    artefact: Path, encoder: Encoder
) -> None:
    data = (artefact / "weights.safetensors").read_bytes()
    own = {digest(array) for array in tensors_of(encoder).values()}
    own |= {digest(np.ascontiguousarray(array.T)) for array in tensors_of(encoder).values()}
    for variant in load_artefact(artefact).variants:
        graph = onnx.load(artefact / variant.file, load_external_data=False).graph
        outside = [tensor for tensor in graph.initializer if tensor.external_data]
        assert len(outside) > 3 * encoder.config.n_layers
        for tensor in outside:
            where = {entry.key: entry.value for entry in tensor.external_data}
            assert where["location"] == "weights.safetensors"
            begin, length = int(where["offset"]), int(where["length"])
            array = np.frombuffer(data[begin : begin + length], np.float32).reshape(tensor.dims)
            assert digest(array) in own, tensor.name
        inside = [tensor for tensor in graph.initializer if not tensor.external_data]
        inside += [a.t for node in graph.node for a in node.attribute if a.HasField("t")]
        assert all(tensor.ByteSize() < LARGE + 100 for tensor in inside)  # 100: name and shape


def test_graphs_are_small_and_name_no_path_of_the_machine_that_exported_them(
    artefact: Path,
) -> None:
    for path in artefact.glob("*.onnx"):
        data = path.read_bytes()
        assert len(data) < 60_000  # two layers; weights are not in it
        for folder in (Path(onnx.__file__).parents[1], Path(__file__).parents[2]):
            assert str(folder).encode() not in data


def model_of(**arrays: Array) -> ModelProto:
    """A model with nothing but initialisers."""
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return helper.make_model(helper.make_graph([], "g", [], [], initializers))


def test_graphs_that_share_a_matrix_share_its_bytes() -> None:
    encoder = random_encoder("mhsa", vocab_size=70)
    up = tensors_of(encoder)["blocks.0.feedforward.up.weight"]
    one, other = model_of(a=up), model_of(b=up, c=np.ascontiguousarray(up.T))
    weights = WeightsFile(encoder)
    weights.add(one)
    weights.add(other)
    data = weights.to_bytes()
    assert sorted(load(data)) == [
        "blocks.0.feedforward.up.weight",
        "blocks.0.feedforward.up.weight.transposed",
    ]
    weights.redirect(one, data)
    weights.redirect(other, data)
    (a,), (b, c) = one.graph.initializer, other.graph.initializer
    assert a.external_data == b.external_data != c.external_data


def test_constants_that_are_not_the_encoders_get_names_of_their_own() -> None:
    first, second = (np.arange(100, dtype=np.int64) + i for i in range(2))
    weights = WeightsFile(random_encoder("mlp_mixer", vocab_size=70))
    weights.add(model_of(a=first, b=second, again=first))
    stored = load(weights.to_bytes())
    assert sorted(stored) == ["constant.0", "constant.1"]
    np.testing.assert_array_equal(stored["constant.0"], first)
    np.testing.assert_array_equal(stored["constant.1"], second)


def test_bytes_of_one_content_in_two_shapes_are_two_tensors() -> None:
    flat = np.arange(100, dtype=np.float32)
    weights = WeightsFile(random_encoder("mhsa", vocab_size=70))
    weights.add(model_of(a=flat, b=flat.reshape(10, 10)))
    assert {array.shape for array in load(weights.to_bytes()).values()} == {(100,), (10, 10)}


def test_a_redirected_graph_reads_what_it_held(tmp_path: Path) -> None:
    held = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    model, weights = (
        model_of(large=held, small=held[0]),
        WeightsFile(random_encoder("mhsa", vocab_size=70)),
    )
    weights.add(model)
    data = weights.to_bytes()
    (tmp_path / "weights.safetensors").write_bytes(data)
    weights.redirect(model, data)
    onnx.save(model, tmp_path / "graph.onnx")
    large, small = model.graph.initializer
    assert large.data_location == TensorProto.EXTERNAL
    assert not large.raw_data
    assert small.data_location == TensorProto.DEFAULT
    read = onnx.load(tmp_path / "graph.onnx").graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(read), held)
