"""The files a graph reads, as our reader finds them and as the onnx package does."""

import contextlib
from pathlib import Path

import onnx
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

from export.references import PATHS, external_tensors, referenced_files
from tests.export.conftest import repeatable

# Our names for the messages of onnx.proto that lead to a tensor's external data.
MESSAGES = {
    "model": "ModelProto",
    "training": "TrainingInfoProto",
    "function": "FunctionProto",
    "graph": "GraphProto",
    "node": "NodeProto",
    "attribute": "AttributeProto",
    "sparse": "SparseTensorProto",
    "tensor": "TensorProto",
    "entry": "StringStringEntryProto",
}


def locations(message: Message) -> set[str]:
    """Files that the tensors in a message lie in, found by the onnx package's own description."""
    if isinstance(message, TensorProto):
        return {text(entry.value) for entry in message.external_data if entry.key == "location"}
    found = set()
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                found |= locations(inner)
    return found


def text(value: str | bytes) -> str:
    """A string of a message; protobuf gives bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def external(location: str) -> TensorProto:
    """A tensor whose numbers lie in a file."""
    tensor = TensorProto(name=location, data_type=TensorProto.FLOAT, dims=[4], raw_data=b"")
    onnx.external_data_helper.set_external_data(tensor, location, offset=0, length=16)
    tensor.ClearField("raw_data")
    return tensor


def graph(location: str) -> GraphProto:
    """A graph with an initialiser in a file."""
    return helper.make_graph([], location, [], [], [external(location)])


def model_with_a_file_in_every_place() -> ModelProto:
    """A model that holds external data wherever the format has room for a tensor."""
    sparse = onnx.SparseTensorProto(values=external("values"), indices=external("indices"))
    branches = helper.make_node(
        "If", ["a"], ["b"], then_branch=graph("then_branch"), else_branch=graph("else_branch")
    )
    constant = helper.make_node("Constant", [], ["c"], value=external("constant"))
    sparse_constant = helper.make_node("Constant", [], ["d"], sparse_value=sparse)
    odd = onnx.NodeProto(op_type="Odd", domain="odd")
    odd.attribute.append(
        AttributeProto(name="t", type=AttributeProto.TENSORS, tensors=[external("tensors")])
    )
    odd.attribute.append(
        AttributeProto(name="g", type=AttributeProto.GRAPHS, graphs=[graph("graphs")])
    )
    odd.attribute.append(
        AttributeProto(name="s", type=AttributeProto.SPARSE_TENSORS, sparse_tensors=[sparse])
    )
    nested = graph("outer")
    nested.node.append(helper.make_node("If", ["a"], ["b"], then_branch=graph("inner")))
    outermost = helper.make_node("Loop", ["a"], ["b"], body=nested)
    main = graph("initializer")
    main.node.extend([branches, constant, sparse_constant, odd, outermost])
    main.sparse_initializer.add(values=external("sparse values"), indices=external("sparse_i"))
    model = helper.make_model(main)
    function = helper.make_function(
        "local", "f", ["x"], ["y"], [], [], attributes=["plain"], attribute_protos=[]
    )
    function.node.append(helper.make_node("Constant", [], ["y"], value=external("function")))
    function.attribute_proto.append(helper.make_attribute("default", external("default")))
    model.functions.append(function)
    model.training_info.add(initialization=graph("initialization"), algorithm=graph("algorithm"))
    return model


MODEL = model_with_a_file_in_every_place()
BYTES = MODEL.SerializeToString()


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    groups = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


def field(number: int, content: bytes) -> bytes:
    """A field that holds bytes or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_an_exported_graph_reads_the_files_that_the_onnx_package_finds(artefact: Path) -> None:
    paths = sorted(artefact.glob("*.onnx"))
    assert paths
    for path in paths:
        model = onnx.load(path, load_external_data=False)
        assert referenced_files(path.read_bytes()) == locations(model) == {"weights.safetensors"}


def test_files_are_found_wherever_a_model_can_hold_a_tensor() -> None:
    assert referenced_files(BYTES) == locations(MODEL)
    assert len(locations(MODEL)) == 16


def test_every_way_from_a_model_to_a_tensor_in_onnxs_own_description_is_followed() -> None:
    messages = messages_in(ModelProto.DESCRIPTOR)
    leading = {TensorProto.DESCRIPTOR.full_name}
    for _ in messages:  # at least one more message joins each time, or none ever will
        leading |= {name for name, inner in messages.items() if leading & set(inner.values())}
    ways = {
        name: {number: to for number, to in messages[name].items() if to in leading}
        for name in leading
    }
    entry = onnx.StringStringEntryProto.DESCRIPTOR.full_name
    ways[TensorProto.DESCRIPTOR.full_name] = {TensorProto.EXTERNAL_DATA_FIELD_NUMBER: entry}
    ways[entry] = {}
    assert ways == {
        f"onnx.{MESSAGES[kind]}": {number: f"onnx.{MESSAGES[to]}" for number, to in paths.items()}
        for kind, paths in PATHS.items()
    }


def messages_in(top: Descriptor) -> dict[str, dict[int, str]]:
    """Of each message that can stand in `top`: {field number: message it holds}."""
    found: dict[str, dict[int, str]] = {}
    pending = [top]
    while pending:
        message = pending.pop()
        inner = {each.number: each.message_type for each in message.fields if each.message_type}
        found[message.full_name] = {number: to.full_name for number, to in inner.items()}
        pending += [to for to in inner.values() if to.full_name not in found]
    return found


def test_a_graph_that_stands_twice_is_read_twice() -> None:
    assert referenced_files(graph_field("one") + graph_field("two")) == {"one", "two"}


def graph_field(location: str) -> bytes:
    """The part of a model that is its graph."""
    return field(7, graph(location).SerializeToString())


def test_the_last_of_several_values_counts_as_in_protobuf() -> None:
    entry = field(1, b"location") + field(2, b"first") + field(2, b"last")
    assert referenced_files(field(7, field(5, field(13, entry)))) == {"last"}


def test_a_file_name_that_is_not_utf8_is_still_found() -> None:
    entry = field(1, b"location") + field(2, b"\xff")
    assert referenced_files(field(7, field(5, field(13, entry)))) == {"\ufffd"}


def test_a_field_number_beyond_32_bits_which_onnx_runtime_cuts_is_refused() -> None:
    content = graph("elsewhere").SerializeToString()
    disguised = varint((7 << 3 | 2) + (1 << 32)) + varint(len(content)) + content
    with pytest.raises(ValueError, match="number is too large"):
        referenced_files(disguised)


def test_messages_nested_deeper_than_python_recurses_are_read() -> None:
    content = graph("at the bottom").SerializeToString()
    for _ in range(3000):
        content = field(1, field(5, field(6, content)))  # graph, node, attribute, graph
    assert referenced_files(field(7, content)) == {"at the bottom"}


@pytest.mark.parametrize(
    "content",
    [b"\x3a\x05abc", b"\x3a", b"\x80" * 11, b"\x0d\x00", b"\x0b\x0c", b"\x0f"],
    ids=["short field", "no length", "endless number", "short fixed32", "group", "wire type 7"],
)
def test_bytes_that_are_no_message_raise_valueerror(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"past the message|wire type"):
        referenced_files(content)


@repeatable
@given(content=st.binary(max_size=400))
@example(b"")
def test_any_bytes_give_file_names_or_valueerror(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(isinstance(name, str) for name in referenced_files(content))


@repeatable
@given(content=st.binary(max_size=60), wraps=st.lists(st.sampled_from([1, 5, 6, 7, 13])))
def test_any_bytes_inside_a_graph_give_file_names_or_valueerror(
    content: bytes, wraps: list[int]
) -> None:
    for number in wraps:
        content = field(number, content)
    with contextlib.suppress(ValueError):
        referenced_files(field(7, content))


@settings(repeatable, max_examples=300)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(BYTES) - 1), st.integers(0, 255)), min_size=1, max_size=3
    )
)
def test_a_damaged_model_hides_no_file_that_the_onnx_package_finds(
    changes: list[tuple[int, int]],
) -> None:
    damaged = bytearray(BYTES)
    for offset, value in changes:
        damaged[offset] = value
    try:
        found = locations(ModelProto.FromString(bytes(damaged)))
    except DecodeError:
        return
    with contextlib.suppress(ValueError):
        assert found <= referenced_files(bytes(damaged))


def test_tensors_in_files_are_found_with_type_shape_and_place(artefact: Path) -> None:
    graph = onnx.load(artefact / "encode.onnx", load_external_data=False).graph
    stated = {}
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            place = (entries["location"], int(entries["offset"]), int(entries["length"]))
            stated[tensor.name] = ("float32", tuple(tensor.dims), *place)
    found = external_tensors((artefact / "encode.onnx").read_bytes())
    assert {t.name: (t.dtype, t.shape, t.file, t.offset, t.length) for t in found} == stated
