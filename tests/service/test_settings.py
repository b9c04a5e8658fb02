"""One table of settings, as flags and variables."""

import dataclasses
import re

import pytest

from service.settings import Settings, flag, read_settings, variable

NAMES = [field.name for field in dataclasses.fields(Settings)]


def test_nothing_given_serves_a_bundled_model_on_the_loopback_address() -> None:
    settings = read_settings([], {})
    assert settings == Settings()
    assert (settings.model, settings.host, settings.port) == ("english-mhsa", "127.0.0.1", 8000)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_a_flag_and_a_variable_and_the_flag_wins(name: str) -> None:
    field = next(field for field in dataclasses.fields(Settings) if field.name == name)
    choices = field.metadata["choices"]
    kind = type(field.default)
    first, second = choices[-2:] or {bool: ("false", "true"), str: ("a", "b")}.get(kind, ("5", "6"))
    if name == "workers":
        first = second = "1"
    environment = {variable(name): first}
    by_variable = getattr(read_settings([], environment), name)
    by_flag = getattr(read_settings([flag(name), second], environment), name)
    assert str(by_variable).lower().removesuffix(".0") == first
    assert str(by_flag).lower().removesuffix(".0") == second


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--port", "http"], {}, "port='http'; a number is wanted"),
        (["--port", "70000"], {}, "port=70000; at most 65535"),
        (["--max-texts", "0"], {}, "max_texts=0; at least 1"),
        (["--device", "tpu"], {}, "device='tpu'; one of: auto, cpu, cuda"),
        (["--workers", "4"], {}, "workers=4; one process serves one device"),
        ([], {"MASKWRIGHT_DOCS": "maybe"}, "docs='maybe'; true or false"),
        ([], {"MASKWRIGHT_MAX_TEXT": "5"}, "MASKWRIGHT_MAX_TEXT is no setting"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(
    arguments: list[str], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_settings(arguments, environment)


def test_help_names_every_flag_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        read_settings(["--help"], {})
    shown = capsys.readouterr().out
    assert all(flag(name) in shown for name in NAMES)
