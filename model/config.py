"""What an encoder and a training run are: frozen settings, sizes and presets."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


def check_choice(field: str, value: str, choices: Collection[str]) -> None:
    """Raise ValueError, naming the choices, if `value` is none of them."""
    if value not in choices:
        raise ValueError(f"{field}={value!r}; one of: {', '.join(choices)}")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of one encoder; saved beside its weights.

    Args:
        mixer: A name in `model.mixers.MIXERS`.
        vocab_size: Number of token ids, specials included.
        max_tokens: Longest row, in tokens.
        d_model: Width of the stream. Divisible by `n_heads`, with an even quotient for RoPE.
        n_layers: Number of blocks.
        n_heads: Attention heads; for the Mixer, feature groups of its token-mixing map.
        d_ff: Width of the feed-forward; None takes 4 · d_model, or for SwiGLU 8/3 · d_model
            rounded up to a multiple of 8, which has as many parameters.
        activation: A name in `model.feedforward.FEEDFORWARDS`.
        norm: A name in `model.layers.NORMS`.
        d_token_hidden: Width of the Mixer's token MLP.
        token_activation: Its activation: gelu, relu or relu2.
        rope_base: Wavelength base of rotary positions, for MHSA. Short rows want short waves:
            1,000 learns faster than the customary 10,000 at some 100 tokens.
        dropout: Share of each sublayer's output dropped while training.
        tied_head: Whether the vocabulary head reuses the embedding.
    """

    mixer: str
    vocab_size: int
    max_tokens: int
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int | None = None
    activation: str = "relu2"
    norm: str = "rms"
    d_token_hidden: int = 256
    token_activation: str = "relu2"
    rope_base: float = 1000.0
    dropout: float = 0.0
    tied_head: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_tokens", "d_model", "n_layers", "n_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; at least 1")
        if self.d_model % (2 * self.n_heads):
            raise ValueError(
                f"d_model={self.d_model} with n_heads={self.n_heads}; "
                "d_model must be a multiple of twice n_heads"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; at least 0 and below 1")

    @property
    def d_feedforward(self) -> int:
        """`d_ff` with its default filled in."""
        if self.d_ff is not None:
            return self.d_ff
        if self.activation == "swiglu":
            return -(-8 * self.d_model // 3 // 8) * 8
        return 4 * self.d_model


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run trains: data, masking, optimizer and budget.

    Args:
        tokenizer: A name in `model.tokenizer.TRAINERS`.
        vocab_size: Vocabulary to train; characters take what the text has.
        row_lengths: Lengths of training rows, in tokens, one drawn for each batch; a length that
            is named twice is drawn twice as often. The service meets short texts, and a Mixer
            learns a position's weights only from rows that reach it.
        line_start_share: Share of a batch's rows that begin where a line of the text does, as the
            texts that the service meets; the others begin anywhere.
        batch_tokens: Tokens per optimizer step, whatever the row length.
        accumulate: Parts that a step's tokens are computed in, one after another, where they do not
            fit the memory at once. What is learnt is the same.
        steps: Optimizer steps.
        seconds: Training time instead of steps (evaluations and checkpoints not counted); the
            schedule then follows the clock, and no two runs are alike.
        mask_rate: Share of a batch's tokens that are predicted, an exact count.
        random_share, keep_share: Of those, shares shown as a random token, or as themselves;
            the rest is shown as [MASK].
        optimizer: A name in `model.optimizer.OPTIMIZERS`.
        lr: Peak learning rate of AdamW.
        muon_lr: Peak learning rate of Muon, which takes the matrices of the blocks.
        schedule: A name in `model.optimizer.SCHEDULES`.
        warmup_steps: Steps over which the rate rises.
        clip: Largest norm of the gradient.
        precision: Of the products: `fp32`, `bf16` (weights stay fp32), or `auto`: bf16 where the
            device is quick at it.
        compile: Whether blocks are compiled: `on`, `off`, or `auto`: on where there is a compiler
            and the run is long enough to earn the wait.
        eval_length: Length of held-out windows, in tokens.
        eval_every: Steps between held-out scores.
        checkpoint_every: Steps between checkpoints.
        log_every: Steps between points of the loss curve.
    """

    tokenizer: str = "char"
    vocab_size: int = 8192
    row_lengths: tuple[int, ...] = (16, 32, 64, 64)
    line_start_share: float = 0.0
    batch_tokens: int = 2048
    accumulate: int = 1
    steps: int = 700
    seconds: float | None = None
    mask_rate: float = 0.3
    random_share: float = 0.0
    keep_share: float = 0.0
    optimizer: str = "muon"
    lr: float = 6e-3
    muon_lr: float = 0.02
    schedule: str = "linear"
    warmup_steps: int = 20
    clip: float = 1.0
    precision: str = "auto"
    compile: str = "auto"
    eval_length: int = 64
    eval_every: int = 200
    checkpoint_every: int = 200
    log_every: int = 10

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, ("auto", "fp32", "bf16"))
        check_choice("compile", self.compile, ("auto", "on", "off"))
        if not 0 < self.mask_rate < 1:
            raise ValueError(f"mask_rate={self.mask_rate}; above 0 and below 1")
        if not 0 <= self.line_start_share <= 1:
            raise ValueError(f"line_start_share={self.line_start_share}; from 0 to 1")
        if self.random_share + self.keep_share > 1:
            raise ValueError("random_share and keep_share together exceed 1")
        for name in ("steps", "accumulate", "eval_every", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds={self.seconds}; above 0")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_token_hidden": 32},
    "small": {"d_model": 128, "n_layers": 6, "n_heads": 8, "d_token_hidden": 256},
    "medium": {"d_model": 256, "n_layers": 4, "n_heads": 8, "d_token_hidden": 256},
    "base": {"d_model": 256, "n_layers": 6, "n_heads": 8, "d_token_hidden": 256},
}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named run: sizes and recipe that go together.

    Args:
        size: A name in `SIZES`.
        encoder: Fields of `EncoderConfig` that differ from the size's.
        by_mixer: The same, for one mixer only.
    """

    recipe: Recipe
    size: str
    max_tokens: int
    encoder: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    by_mixer: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def encoder_config(
        self, *, mixer: str, vocab_size: int, size: str | None = None
    ) -> EncoderConfig:
        """The encoder of this preset with one mixer, in another size if one is named."""
        fields: dict[str, Any] = {"max_tokens": self.max_tokens} | SIZES[self.size]
        fields |= {"tied_head": self.recipe.tokenizer != "char"} | dict(self.encoder)
        if size is not None:
            check_choice("size", size, SIZES)
            fields |= SIZES[size]
        fields |= self.by_mixer.get(mixer, {})
        return EncoderConfig(mixer=mixer, vocab_size=vocab_size, **fields)


# The known MLP-Mixer experiment of labml.ai's annotated implementations, at its sizes, with its
# masking (two independent draws of 10 %: 81 % [MASK], 10 % random, 9 % kept) and its schedule.
LABML = Preset(
    size="small",
    max_tokens=32,
    encoder={"d_ff": 256, "d_token_hidden": 128, "dropout": 0.1},
    by_mixer={
        "mhsa": {"activation": "relu"},
        "mlp_mixer": {"activation": "gelu", "token_activation": "gelu"},
    },
    recipe=Recipe(
        row_lengths=(32,),
        batch_tokens=64 * 32,
        steps=1000,
        mask_rate=0.15,
        random_share=0.10,
        keep_share=0.09,
        optimizer="adam",
        schedule="noam",
        lr=128**-0.5,
        warmup_steps=2000,
        eval_length=32,
    ),
)

# The same sizes, rows and batches with our recipe: what `make bench-train` races against it.
SPRINT = Preset(
    size="small",
    max_tokens=32,
    encoder={"d_ff": 256, "d_token_hidden": 128},
    recipe=Recipe(row_lengths=(32,), steps=1000, warmup_steps=5, eval_length=32),
)

# An encoder of English that some CPU-hours train. Its rows are mostly short, as requests are; each
# length has its graph to compile, and the longest has a quarter of the tokens, since the Mixer's
# far positions learn from nothing else.
DEMO = Preset(
    size="medium",
    max_tokens=128,
    recipe=Recipe(
        tokenizer="wordpiece",
        vocab_size=16384,
        row_lengths=(12, 16, 24, 32, 32, 64, 128, 128),
        line_start_share=0.5,
        batch_tokens=4096,
        steps=6000,
        warmup_steps=100,
        eval_every=1000,
        checkpoint_every=250,
        log_every=10,
    ),
)

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        size="tiny",
        max_tokens=32,
        recipe=Recipe(
            row_lengths=(8, 16, 32),
            batch_tokens=512,
            steps=60,
            warmup_steps=5,
            eval_length=32,
            eval_every=30,
            log_every=5,
        ),
    ),
    "shakespeare": Preset(size="small", max_tokens=64, recipe=Recipe()),
    "demo": DEMO,
    "sprint": SPRINT,
    "labml": LABML,
}


def to_json(config: EncoderConfig | Recipe) -> dict[str, Any]:
    """The settings as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def encoder_config_from_json(fields: Mapping[str, Any]) -> EncoderConfig:
    """The reverse of `to_json`; unknown fields are an error that names them."""
    _check_fields(EncoderConfig, fields)
    return EncoderConfig(**fields)


def recipe_from_json(fields: Mapping[str, Any]) -> Recipe:
    """The reverse of `to_json`; unknown fields are an error that names them."""
    _check_fields(Recipe, fields)
    return Recipe(**{**fields, "row_lengths": tuple(fields["row_lengths"])})


def _check_fields(kind: type[EncoderConfig] | type[Recipe], fields: Mapping[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := set(fields) - known:
        raise ValueError(f"{kind.__name__} has unknown fields: {', '.join(sorted(unknown))}")
