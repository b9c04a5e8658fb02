"""An encoder as ONNX graphs whose weights lie in one safetensors file.

`encode` answers fill-mask and embedding in one pass; `attention` shows the mixing weights;
`every-logit` is what other libraries expect. Output names never match an operator's: the exporter
would write a wrong model.
"""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx
import torch
from jaxtyping import Float, Int
from onnx import ModelProto, TensorProto
from torch import Tensor, nn

from export.artefact import N_TOP
from model.encoder import Encoder, real_positions
from model.mixers import SelfAttention
from model.pooling import POOLINGS


@dataclass(frozen=True)
class Form:
    """How a graph is written.

    Attributes:
        opset: Operator set; below 20 there is no Gelu, from 24 on Attention takes lengths.
        attention_op: Whether self-attention is one ONNX `Attention` node.
    """

    opset: int
    attention_op: bool


class Graph(nn.Module):
    """What is exported: an encoder, and tensors out of it by name."""

    inputs: ClassVar[tuple[str, ...]]
    outputs: ClassVar[tuple[str, ...]]

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder


class Encode(Graph):
    """`input_ids` [B,T], `lengths` [B], `mask_positions` [N,2] to vectors and candidates.

    ONNX Runtime computes all of a graph whatever is fetched, so the vocabulary head runs on the N
    gathered rows only and the best candidates are picked here.
    """

    inputs = ("input_ids", "lengths", "mask_positions")
    outputs = (
        *(f"pooled_{name}" for name in POOLINGS),
        "last_hidden",
        "top_logprobs",
        "top_ids",
        "mask_logprobs",
    )

    def forward(
        self,
        input_ids: Int[Tensor, "batch seq"],
        lengths: Int[Tensor, " batch"],
        mask_positions: Int[Tensor, "masked 2"],
    ) -> tuple[Tensor, ...]:
        """The tensors of `outputs`, in their order."""
        hidden = self.encoder(input_ids, lengths)
        real = real_positions(input_ids, lengths)
        pooled = [pool(hidden, real) for pool in POOLINGS.values()]
        logprobs = self.encoder.logits(hidden, mask_positions).log_softmax(dim=1)
        top = logprobs.topk(min(N_TOP, logprobs.shape[1]), dim=1)
        return (*pooled, hidden, top.values, top.indices, logprobs)


class Attention(Graph):
    """`input_ids` [B,T] and `lengths` [B] to every layer's mixing weights [B,L,H,T,T]."""

    inputs = ("input_ids", "lengths")
    outputs = ("mixing_weights",)

    def forward(
        self, input_ids: Int[Tensor, "batch seq"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch layers heads seq seq"]:
        """The weights, written out: no fused operator returns them."""
        return self.encoder.mixing_weights(input_ids, lengths)


class EveryLogit(Graph):
    """`input_ids` and `attention_mask` [B,T] to logits [B,T,V] and hidden states [B,T,D].

    What other libraries take a masked-language model to be. Padding is on the right.
    """

    inputs = ("input_ids", "attention_mask")
    outputs = ("logits", "last_hidden_state")

    def forward(
        self, input_ids: Int[Tensor, "batch seq"], attention_mask: Int[Tensor, "batch seq"]
    ) -> tuple[Tensor, ...]:
        """The tensors of `outputs`, in their order."""
        hidden = self.encoder(input_ids, attention_mask.sum(dim=1))
        return self.encoder.every_logit(hidden), hidden


class AttentionOp(nn.Module):
    """Self-attention as ONNX `Attention` (opset 24) with the lengths as `nonpad_kv_seqlen`.

    The fastest form on ONNX Runtime's CPU provider, and the one its CUDA provider runs as Flash
    attention in half precision. Padded rows come out finite and meaningless.
    """

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """As `SelfAttention.forward`, at real positions."""
        mixer = self.attention
        q_BTD = self._rotated(mixer.query(x))
        k_BTD = self._rotated(mixer.key(x))
        lengths = real.sum(dim=1)
        mixed_BTD = torch.onnx.ops.symbolic(
            "Attention",
            (q_BTD, k_BTD, mixer.value(x), None, None, None, lengths),
            {"q_num_heads": mixer.n_heads, "kv_num_heads": mixer.n_heads},
            dtype=x.dtype,
            shape=x.shape,
            version=24,
        )
        return mixer.output(mixed_BTD)

    def _rotated(self, x_BTD: Tensor) -> Tensor:
        """Rotary positions without the transposes to and from heads-first."""
        rotate, n_tokens = self.attention.rotate, x_BTD.shape[1]
        x_BTHK = x_BTD.unflatten(2, (self.attention.n_heads, -1))
        half = x_BTHK.shape[3] // 2
        swapped = torch.cat([x_BTHK[..., half:], x_BTHK[..., :half]], dim=-1)
        cos, sin = rotate.cos[:n_tokens, None], rotate.sin[:n_tokens, None]
        return (x_BTHK * cos + swapped * sin).flatten(2)


def export_graph(encoder: Encoder, graph: str, form: Form) -> ModelProto:
    """One graph of `encoder` with its weights inside; batch, length and masks are dynamic."""
    module = GRAPHS[graph](_in_form(encoder, form)).eval()
    batch = torch.export.Dim("batch")
    tokens = torch.export.Dim("tokens", max=encoder.config.max_tokens)
    # At least two of each: the exporter takes a one for a constant.
    n_tokens = min(8, encoder.config.max_tokens)
    masked = torch.export.Dim("masked")
    lengths = torch.tensor([n_tokens, 1])
    examples: dict[str, tuple[Tensor, Any]] = {
        "input_ids": (torch.zeros(2, n_tokens, dtype=torch.int64), {0: batch, 1: tokens}),
        "lengths": (lengths, {0: batch}),
        "attention_mask": (
            (torch.arange(n_tokens) < lengths[:, None]).long(),
            {0: batch, 1: tokens},
        ),
        "mask_positions": (torch.tensor([[0, 0], [0, 1], [1, 0]]), {0: masked}),
    }
    inputs = {name: examples[name] for name in GRAPHS[graph].inputs}
    with _quiet():
        program = torch.onnx.export(
            module,
            tuple(example for example, _ in inputs.values()),
            input_names=list(inputs),
            output_names=list(GRAPHS[graph].outputs),
            opset_version=form.opset,
            dynamic_shapes=tuple(shape for _, shape in inputs.values()),
            verbose=False,
        )
    assert program is not None  # only a call with a path returns none
    model = program.model_proto
    for node in model.graph.node:
        node.ClearField("metadata_props")  # stack traces, with the paths of this machine
    return model


def _in_form(encoder: Encoder, form: Form) -> Encoder:
    """A copy of the encoder whose mixers are written as the form wants them."""
    encoder = copy.deepcopy(encoder)
    if form.attention_op:
        for block in encoder.blocks:
            if isinstance(block.mixer, SelfAttention):
                block.mixer = AttentionOp(block.mixer)
    return encoder


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's own deprecation warnings and its notes on torchvision to itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def external_tensors(model: ModelProto, *, smallest: int = 256) -> list[TensorProto]:
    """The initialisers of at least `smallest` bytes: what goes to the weights file."""
    return [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= smallest]


def point_to_file(tensor: TensorProto, *, location: str, offset: int, length: int) -> None:
    """Make an initialiser refer to bytes of a file instead of holding them."""
    onnx.external_data_helper.set_external_data(tensor, location, offset=offset, length=length)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


GRAPHS: dict[str, type[Graph]] = {
    "encode": Encode,
    "attention": Attention,
    "every-logit": EveryLogit,
}

FORMS: dict[str, Form] = {
    "attention-op": Form(opset=24, attention_op=True),
    "decomposed": Form(opset=20, attention_op=False),
}
