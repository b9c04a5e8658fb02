"""Settings: bad values are refused in a sentence, presets fit together, JSON keeps everything."""

import dataclasses
from typing import Any

import pytest

from model.config import (
    PRESETS,
    SIZES,
    EncoderConfig,
    Recipe,
    encoder_config_from_json,
    to_json,
)
from model.encoder import Encoder, n_parameters
from model.mixers import MIXERS
from model.optimizer import OPTIMIZERS, SCHEDULES
from model.tokenizer import TRAINERS


def config(**fields: Any) -> EncoderConfig:
    sizes = {"vocab_size": 20, "max_tokens": 8, "d_model": 16, "n_layers": 1, "n_heads": 2}
    return EncoderConfig(**{"mixer": "mhsa"} | sizes | fields)


@pytest.mark.parametrize("field", ["vocab_size", "max_tokens", "d_model", "n_layers", "n_heads"])
def test_a_size_below_one_is_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}=0; at least 1$"):
        config(**{field: 0})


@pytest.mark.parametrize(("d_model", "n_heads"), [(16, 3), (12, 4), (10, 10)])
def test_a_width_that_gives_no_even_heads_is_refused(d_model: int, n_heads: int) -> None:
    with pytest.raises(ValueError, match=f"d_model={d_model} with n_heads={n_heads}; .*twice"):
        config(d_model=d_model, n_heads=n_heads)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_outside_its_range_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"^dropout={dropout}; at least 0 and below 1$"):
        config(dropout=dropout)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"mask_rate": 0.0}, "mask_rate=0.0; above 0 and below 1"),
        ({"mask_rate": 1.0}, "mask_rate=1.0; above 0 and below 1"),
        (
            {"random_share": 0.6, "keep_share": 0.5},
            "random_share and keep_share together exceed 1",
        ),
        ({"line_start_share": 1.5}, "line_start_share=1.5; from 0 to 1"),
        ({"steps": 0}, "steps=0; at least 1"),
    ],
)
def test_a_recipe_that_cannot_run_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        Recipe(**fields)


@pytest.mark.parametrize("activation", ["gelu", "relu", "relu2"])
def test_a_plain_feedforward_is_four_times_as_wide_by_default(activation: str) -> None:
    assert config(activation=activation).d_feedforward == 4 * 16


@pytest.mark.parametrize(("d_model", "expected"), [(16, 48), (96, 256), (128, 344)])
def test_a_swiglu_is_eight_thirds_as_wide_rounded_up_to_eights(d_model: int, expected: int) -> None:
    assert config(activation="swiglu", d_model=d_model).d_feedforward == expected


def test_a_stated_width_of_the_feedforward_stands() -> None:
    assert config(activation="swiglu", d_ff=24).d_feedforward == 24


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("size", [None, *SIZES])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_with_every_mixer_at_every_size(
    preset: str, size: str | None, mixer: str
) -> None:
    made = PRESETS[preset].encoder_config(mixer=mixer, vocab_size=30, size=size)
    encoder = Encoder(made)
    widths = SIZES[size or PRESETS[preset].size]
    assert (made.d_model, made.n_layers, made.n_heads) == (
        widths["d_model"],
        widths["n_layers"],
        widths["n_heads"],
    )
    assert n_parameters(encoder) > 30 * made.d_model


@pytest.mark.parametrize("preset", PRESETS)
def test_a_presets_rows_and_windows_fit_its_encoder(preset: str) -> None:
    recipe, limit = PRESETS[preset].recipe, PRESETS[preset].max_tokens
    assert max(*recipe.row_lengths, recipe.eval_length) <= limit


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_only_things_that_exist(preset: str) -> None:
    recipe = PRESETS[preset].recipe
    assert recipe.tokenizer in TRAINERS
    assert recipe.optimizer in OPTIMIZERS
    assert recipe.schedule in SCHEDULES


def test_an_unknown_size_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="size='huge'; one of: tiny, small, medium, base"):
        PRESETS["tiny"].encoder_config(mixer="mhsa", vocab_size=9, size="huge")


def test_the_head_is_tied_unless_tokens_are_characters() -> None:
    preset = PRESETS["tiny"]
    words = dataclasses.replace(preset, recipe=dataclasses.replace(preset.recipe, tokenizer="bpe"))
    assert not preset.encoder_config(mixer="mhsa", vocab_size=9).tied_head
    assert words.encoder_config(mixer="mhsa", vocab_size=9).tied_head


def test_the_labml_preset_has_the_sizes_of_the_published_experiment() -> None:
    mixer = PRESETS["labml"].encoder_config(mixer="mlp_mixer", vocab_size=65)
    assert (mixer.n_layers, mixer.d_model, mixer.n_heads) == (6, 128, 8)
    assert (mixer.d_feedforward, mixer.d_token_hidden, mixer.max_tokens) == (256, 128, 32)
    assert (mixer.activation, mixer.token_activation, mixer.dropout) == ("gelu", "gelu", 0.1)
    recipe = PRESETS["labml"].recipe
    assert (recipe.row_lengths, recipe.batch_tokens) == ((32,), 64 * 32)
    assert (recipe.mask_rate, recipe.optimizer, recipe.schedule) == (0.15, "adam", "noam")


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_config_survives_json(preset: str, mixer: str) -> None:
    made = PRESETS[preset].encoder_config(mixer=mixer, vocab_size=30)
    assert encoder_config_from_json(to_json(made)) == made


def test_a_recipe_as_json_has_plain_values_only() -> None:
    fields = to_json(PRESETS["tiny"].recipe)
    assert fields["row_lengths"] == [8, 16, 32]
    assert Recipe(**fields | {"row_lengths": (8, 16, 32)}) == PRESETS["tiny"].recipe


def test_unknown_fields_in_json_are_named() -> None:
    with pytest.raises(ValueError, match="unknown fields: colour, depth"):
        encoder_config_from_json(to_json(config()) | {"depth": 3, "colour": "red"})
