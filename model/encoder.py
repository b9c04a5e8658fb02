"""The encoder: an embedding, pre-norm blocks, a final norm and a head on the masked positions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from model.config import EncoderConfig, check_choice
from model.feedforward import ACTIVATIONS, FEEDFORWARDS
from model.layers import NORMS, linear
from model.mixers import MIXERS


class Block(nn.Module):
    """`x + mixer(norm(x))`, then `x + feedforward(norm(x))`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.mixer_norm = NORMS[config.norm](config.d_model)
        self.mixer = MIXERS[config.mixer](config)
        self.feedforward_norm = NORMS[config.norm](config.d_model)
        self.feedforward = FEEDFORWARDS[config.activation](config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch seq d_model"], real: Bool[Tensor, "batch seq"] | None = None
    ) -> Float[Tensor, "batch seq d_model"]:
        """One layer of mixing and transforming; `real` is False at padding, None without any."""
        return self._add(x, self.mixer(self.mixer_norm(x), real))

    def with_weights(
        self, x: Float[Tensor, "batch seq d_model"], real: Bool[Tensor, "batch seq"]
    ) -> tuple[Float[Tensor, "batch seq d_model"], Float[Tensor, "batch heads seq seq"]]:
        """`forward`, and the mixer's weights."""
        mixed, weights = self.mixer.with_weights(self.mixer_norm(x), real)
        return self._add(x, mixed), weights

    def _add(
        self, x: Float[Tensor, "batch seq d_model"], mixed: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq d_model"]:
        x = x + self.dropout(mixed)
        return x + self.dropout(self.feedforward(self.feedforward_norm(x)))


class Encoder(nn.Module):
    """Token ids to hidden states, and hidden states to vocabulary logits.

    The embedding starts as N(0, 1), so that the first norm changes little; a tied head divides
    by √d_model, so that logits start at the scale of an untied head's.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        check_choice("mixer", config.mixer, MIXERS)
        check_choice("norm", config.norm, NORMS)
        check_choice("activation", config.activation, FEEDFORWARDS)
        check_choice("token_activation", config.token_activation, ACTIVATIONS)
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = NORMS[config.norm](config.d_model)
        self.head = None if config.tied_head else linear(config.d_model, config.vocab_size)
        self.head_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self, ids: Int[Tensor, "batch seq"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch seq d_model"]:
        """Hidden states after the final norm; whatever stands past a row's length is ignored.

        Without `lengths` every row is full, which saves the work of looking for padding.
        """
        real = None if lengths is None else real_positions(ids, lengths)
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, real)
        return self.final_norm(x)

    def mixing_weights(
        self, ids: Int[Tensor, "batch seq"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch layers heads seq seq"]:
        """Every layer's mixing weights on the way through."""
        real = real_positions(ids, lengths)
        x, layers = self.embedding(ids), []
        for block in self.blocks:
            x, weights = block.with_weights(x, real)  # type: ignore[operator]  # a Block
            layers.append(weights)
        return torch.stack(layers, dim=1)

    def logits(
        self, hidden: Float[Tensor, "batch seq d_model"], positions: Int[Tensor, "masked 2"]
    ) -> Float[Tensor, "masked vocab"]:
        """Vocabulary logits at `positions` (row, column) only: the head is the dearest layer."""
        return self._headed(self.head_inputs(hidden, positions))

    def every_logit(
        self, hidden: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq vocab"]:
        """Vocabulary logits at every position, as other libraries have them."""
        return self._headed(self._scaled(hidden))

    def head_inputs(
        self, hidden: Float[Tensor, "batch seq d_model"], positions: Int[Tensor, "masked 2"]
    ) -> Float[Tensor, "masked d_model"]:
        """What the head takes at `positions`."""
        return self._scaled(hidden[positions[:, 0], positions[:, 1]])

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden if self.head is not None else hidden * self.config.d_model**-0.5

    def _headed(self, inputs: Tensor) -> Tensor:
        if self.head is not None:
            return self.head(inputs) + self.head_bias
        return nn.functional.linear(inputs, self.head_weight, self.head_bias)

    @property
    def head_weight(self) -> Tensor:
        """The head's matrix [vocab, d_model]."""
        return self.embedding.weight if self.head is None else self.head.weight


def real_positions(
    ids: Int[Tensor, "batch seq"], lengths: Int[Tensor, " batch"]
) -> Bool[Tensor, "batch seq"]:
    """True where a row has text, False at its padding."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def n_parameters(encoder: Encoder) -> int:
    """Trained numbers, each counted once."""
    return sum(parameter.numel() for parameter in encoder.parameters())
