"""Graphs say what torch says, whatever the batch, the lengths and the masks."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto

from export.artefact import load_artefact
from export.build import PLAN
from export.graphs import FORMS, GRAPHS, export_graph
from export.parity import measure
from model.config import PRESETS
from model.encoder import Encoder
from model.feedforward import ACTIVATIONS, FEEDFORWARDS
from model.mixers import MIXERS
from model.pooling import POOLINGS
from tests.conftest import random_encoder
from tests.export.conftest import repeatable

Arrays = dict[str, NDArray[np.generic]]

# Of each output's largest magnitude, or of 1: float32 keeps 6e-8, and kernels sum in other orders.
FP32_TOLERANCE = 1e-5
LONGEST = 32  # of the tiny encoders


@dataclass(frozen=True)
class Exported:
    """A graph of a tiny artefact, and the encoder it was exported from."""

    graph: str
    session: ort.InferenceSession
    encoder: Encoder

    def outputs(self, inputs: Arrays) -> Arrays:
        """All outputs by name; the attention graph takes no masks."""
        names = [output.name for output in self.session.get_outputs()]
        feeds = {put.name: inputs[put.name] for put in self.session.get_inputs()}
        return dict(zip(names, self.session.run(names, feeds), strict=True))


GRAPH_FILES = [
    pytest.param((mixer, graph, file), id=f"{mixer}-{graph}-{form}")
    for mixer, (graph, form, file) in product(MIXERS, PLAN)
]


@pytest.fixture(scope="module", params=GRAPH_FILES)
def exported(
    request: pytest.FixtureRequest,
    artefact_of: Callable[[str], Path],
    encoder_of: Callable[[str], Encoder],
) -> Exported:
    """Each graph in each form, of each mixer's tiny artefact."""
    mixer, graph, file = request.param
    path = artefact_of(mixer) / file
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return Exported(graph, session, encoder_of(mixer))


def random_inputs(
    encoder: Encoder, lengths: list[int], *, masks: list[tuple[int, int]], seed: int = 0
) -> Arrays:
    """Rows of random ids, with ids at padding too."""
    random = np.random.default_rng(seed)
    shape = (len(lengths), max(lengths))
    return {
        "input_ids": random.integers(0, encoder.config.vocab_size, shape),
        "lengths": np.array(lengths, np.int64),
        "mask_positions": np.array(masks, np.int64).reshape(-1, 2),
    }


@torch.no_grad()
def torch_says(encoder: Encoder, graph: str, inputs: Arrays) -> Arrays:
    """What the graph must say, from torch with each row alone and without padding."""
    ids = torch.from_numpy(inputs["input_ids"])
    lengths: list[int] = inputs["lengths"].tolist()
    rows = [(ids[i : i + 1, :n], torch.tensor([n])) for i, n in enumerate(lengths)]
    if graph == "attention":
        config = encoder.config
        shape = (len(rows), config.n_layers, config.n_heads, ids.shape[1], ids.shape[1])
        weights = np.zeros(shape, np.float32)
        for i, (row, n) in enumerate(rows):
            weights[i, ..., :n, :n] = encoder.mixing_weights(row, n)[0].numpy()
        return {"mixing_weights": weights}
    hidden = [encoder(row, n) for row, n in rows]
    real = [torch.ones(1, n, dtype=torch.bool) for n in lengths]
    pooled = {
        f"pooled_{name}": torch.cat([pool(h, r) for h, r in zip(hidden, real, strict=True)])
        for name, pool in POOLINGS.items()
    }
    at_masks = [
        encoder.logits(hidden[row], torch.tensor([[0, column]]))
        for row, column in inputs["mask_positions"].tolist()
    ]
    empty = torch.zeros(0, encoder.config.vocab_size)
    logprobs = torch.cat([empty, *at_masks]).log_softmax(dim=1)
    return {
        **{name: vector.numpy() for name, vector in pooled.items()},
        "last_hidden": torch.cat(hidden, dim=1)[0].numpy(),  # real positions, row after row
        "mask_logprobs": logprobs.numpy(),
        "top_logprobs": logprobs.topk(64).values.numpy(),
    }


def assert_says_what_torch_says(exported: Exported, inputs: Arrays) -> None:
    """Every output within `FP32_TOLERANCE`, in torch's shape."""
    expected = torch_says(exported.encoder, exported.graph, inputs)
    found = exported.outputs(inputs)
    top_ids = found.pop("top_ids", None)
    if "last_hidden" in found:
        real = np.arange(inputs["input_ids"].shape[1]) < inputs["lengths"][:, None]
        found["last_hidden"] = found["last_hidden"][real]
    assert found.keys() == expected.keys()
    for name in found:
        assert_close(found[name], expected[name])
    if top_ids is not None:  # ties may stand in either order: ids are good if their values are
        assert_close(
            np.take_along_axis(expected["mask_logprobs"], top_ids, 1), found["top_logprobs"]
        )
        assert all(len(set(row)) == 64 for row in top_ids.tolist())


def assert_close(found: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
    """`found` is within `FP32_TOLERANCE` of `expected`."""
    assert found.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=FP32_TOLERANCE * scale)


@pytest.mark.parametrize(
    ("lengths", "masks"),
    [
        ([1], [(0, 0)]),
        ([7], [(0, 3), (0, 0), (0, 6)]),
        ([LONGEST, 9, 1], [(0, 31), (1, 8), (2, 0)]),
        ([LONGEST, 17, 2, 5], [(3, 4), (0, 0)]),
        ([3, LONGEST], [(1, column) for column in range(LONGEST)]),
        ([1], []),
        ([5, LONGEST, 2], []),
    ],
    ids=["one token", "one row", "ragged", "four rows", "all masked", "no mask", "no mask, ragged"],
)
def test_a_graph_says_what_torch_says_of_each_row_alone(
    exported: Exported, lengths: list[int], masks: list[tuple[int, int]]
) -> None:
    assert_says_what_torch_says(exported, random_inputs(exported.encoder, lengths, masks=masks))


@settings(repeatable, max_examples=30)
@given(
    lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=5),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_graph_says_what_torch_says_for_any_batch(
    exported: Exported, lengths: list[int], share: float, seed: int
) -> None:
    places = [(row, column) for row, n in enumerate(lengths) for column in range(n)]
    chosen = np.random.default_rng(seed).random(len(places)) < share
    masks = [place for place, masked in zip(places, chosen, strict=True) if masked]
    assert_says_what_torch_says(
        exported, random_inputs(exported.encoder, lengths, masks=masks, seed=seed)
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_stands_at_padding_changes_no_bit_at_real_positions(
    exported: Exported, seed: int
) -> None:
    lengths = [LONGEST, 3, 17, 1]
    inputs = random_inputs(exported.encoder, lengths, masks=[(1, 2), (3, 0)])
    real = np.arange(LONGEST) < inputs["lengths"][:, None]
    other = random_inputs(exported.encoder, lengths, masks=[], seed=seed + 1)["input_ids"]
    spoilt = inputs | {"input_ids": np.where(real, inputs["input_ids"], other)}
    before, after = exported.outputs(inputs), exported.outputs(spoilt)
    for name in before:
        rows = real if name == "last_hidden" else ...
        np.testing.assert_array_equal(after[name][rows], before[name][rows], err_msg=name)


def test_inputs_and_outputs_have_the_names_types_and_axes_of_the_design(
    exported: Exported,
) -> None:
    config = exported.encoder.config
    width, vocabulary = config.d_model, config.vocab_size
    inputs = {
        "input_ids": ("tensor(int64)", ["batch", "tokens"]),
        "lengths": ("tensor(int64)", ["batch"]),
        "mask_positions": ("tensor(int64)", ["masked", 2]),
    }
    encode = {
        "pooled_mean": ("tensor(float)", ["batch", width]),
        "pooled_first": ("tensor(float)", ["batch", width]),
        "pooled_max": ("tensor(float)", ["batch", width]),
        "last_hidden": ("tensor(float)", ["batch", "tokens", width]),
        "top_logprobs": ("tensor(float)", ["masked", 64]),
        "top_ids": ("tensor(int64)", ["masked", 64]),
        "mask_logprobs": ("tensor(float)", ["masked", vocabulary]),
    }
    axes = ["batch", config.n_layers, config.n_heads, "tokens", "tokens"]
    attention = {"mixing_weights": ("tensor(float)", axes)}
    if exported.graph == "attention":
        del inputs["mask_positions"]
    found = [exported.session.get_inputs(), exported.session.get_outputs()]
    assert [{put.name: (put.type, put.shape) for put in puts} for puts in found] == [
        inputs,
        encode if exported.graph == "encode" else attention,
    ]


def test_no_output_has_the_name_of_an_operator() -> None:
    # The exporter writes a wrong model where a value has its operator's name.
    operators = {schema.name.lower() for schema in onnx.defs.get_all_schemas()}
    outputs = {name for graph in GRAPHS.values() for name in graph.outputs}
    assert not outputs & operators
    assert not [name for name in outputs if hasattr(torch.ops.aten, name)]
    assert hasattr(torch.ops.aten, "embedding")  # the look-up finds what it must
    assert "softmax" in operators


@pytest.mark.parametrize("mixer", MIXERS)
def test_only_self_attention_in_the_attention_op_form_uses_the_attention_operator(
    artefact_of: Callable[[str], Path], mixer: str
) -> None:
    n_layers = 2
    for variant in load_artefact(artefact_of(mixer)).variants:
        model = onnx.load(artefact_of(mixer) / variant.file, load_external_data=False)
        (opset,) = model.opset_import
        assert (opset.domain, opset.version) == ("", FORMS[variant.form].opset)
        nodes = [node for node in model.graph.node if node.op_type == "Attention"]
        fused = mixer == "mhsa" and variant.form == "attention-op"
        assert len(nodes) == (n_layers if fused else 0)
        assert all(len(node.input) == 7 for node in nodes)  # the seventh is nonpad_kv_seqlen


def test_the_forms_are_opset_24_with_and_opset_20_without_the_attention_operator() -> None:
    forms = {name: (form.opset, form.attention_op) for name, form in FORMS.items()}
    assert forms == {"attention-op": (24, True), "decomposed": (20, False)}


def exported_parity(encoder: Encoder, graph: str, form: str, folder: Path) -> float:
    """Export one graph, prove it, and give its largest difference to torch."""
    path = folder / "graph.onnx"
    onnx.save(export_graph(encoder, graph, FORMS[form]), path)
    return max(measure(path, graph, encoder).to_torch.values())


@pytest.mark.slow
@pytest.mark.parametrize(("mixer", "form"), [("mlp_mixer", "decomposed"), ("mhsa", "attention-op")])
@pytest.mark.parametrize("activation", FEEDFORWARDS)
def test_every_feed_forward_with_a_tied_head_exports_with_parity(
    activation: str, mixer: str, form: str, tmp_path: Path
) -> None:
    # Fewer ids than the 64 candidates, too; the token MLP takes what has no gate.
    token = {"token_activation": activation} if activation in ACTIVATIONS else {}
    encoder = random_encoder(
        mixer, vocab_size=11, n_layers=1, tied_head=True, activation=activation, **token
    )
    assert exported_parity(encoder, "encode", form, tmp_path) <= FP32_TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_exports_with_parity(preset: str, mixer: str, tmp_path: Path) -> None:
    config = PRESETS[preset].encoder_config(mixer=mixer, vocab_size=11)
    encoder = Encoder(dataclasses.replace(config, n_layers=1)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():  # some begin at zero, which would hide their block
            parameter.normal_(std=0.1, generator=generator)
    assert exported_parity(encoder, "encode", "attention-op", tmp_path) <= FP32_TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("activation", sorted({*ACTIVATIONS} - {"relu2"}))  # the artefact's
def test_the_mixing_map_of_every_token_activation_exports_with_parity(
    activation: str, tmp_path: Path
) -> None:
    encoder = random_encoder("mlp_mixer", vocab_size=11, n_layers=1, token_activation=activation)
    assert exported_parity(encoder, "attention", "decomposed", tmp_path) <= FP32_TOLERANCE


@pytest.fixture(scope="module")
def few_tokens() -> tuple[Encoder, Encoder, ModelProto]:
    """An encoder of few tokens before and after it was exported, and its graph."""
    encoder = random_encoder("mhsa", vocab_size=11, n_layers=1, max_tokens=3)
    before = copy.deepcopy(encoder)
    return before, encoder, export_graph(encoder, "encode", FORMS["attention-op"])


@pytest.mark.slow
def test_an_encoder_of_few_tokens_exports_with_parity(
    few_tokens: tuple[Encoder, Encoder, ModelProto], tmp_path: Path
) -> None:
    encoder, _, model = few_tokens
    onnx.save(model, tmp_path / "graph.onnx")
    parity = measure(tmp_path / "graph.onnx", "encode", encoder)
    assert max(parity.to_torch.values()) <= FP32_TOLERANCE


@pytest.mark.slow
def test_exporting_leaves_the_encoder_as_it_was(
    few_tokens: tuple[Encoder, Encoder, ModelProto],
) -> None:
    before, after, _ = few_tokens
    assert str(after) == str(before)  # every module by class
    assert after.training == before.training
    tensors, others = ([*e.named_parameters(), *e.named_buffers()] for e in (after, before))
    for (name, tensor), (other_name, other) in zip(tensors, others, strict=True):
        assert name == other_name
        assert torch.equal(tensor, other)
        assert tensor.requires_grad == other.requires_grad
