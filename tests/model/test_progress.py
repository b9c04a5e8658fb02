"""What a person sees of a run: a line for each held-out score, and its sample."""

import dataclasses

import pytest

from model.config import Recipe
from model.evaluate import Score
from model.progress import CHARACTERS_WORTH_A_BAR, Progress
from model.report import Record

RECIPE = Recipe(steps=100, log_every=10)


def record(*scored: int, sample: str = "to [b]e") -> Record:
    made = Record(train=[(10, 3.5)], n_tokens=640, step_seconds=2.0)
    made.held_out = [(at, Score(3.25, 0.125, 80, 0.5)) for at in scored]
    made.samples = [(at, sample) for at in scored]
    return made


def test_each_score_is_a_line_with_its_sample_below(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(shown=True) as progress:
        progress.training(RECIPE, board=None)(10, record(10))
    out, err = capsys.readouterr()
    assert out == ""
    line, sample = err.splitlines()
    assert line.startswith("step 10: training loss 3.500, held-out loss 3.2500 nats")
    assert line.endswith("320 tokens/s")
    assert sample == "to [b]e"


def test_a_score_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(shown=True) as progress:
        tell = progress.training(RECIPE, board=None)
        tell(10, record(10))
        tell(20, record(10))
        tell(30, record(10, 30))
        tell(40, record(10, 30))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines[::2]] == ["step 10", "step 30"]


def test_without_a_terminal_a_run_says_each_minute_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(shown=True) as progress:
        tell = progress.training(RECIPE, board=None)
        for step, seconds in ((10, 30.0), (20, 70.0), (30, 100.0), (40, 135.0)):
            tell(step, dataclasses.replace(record(), step_seconds=seconds))
    assert capsys.readouterr().err.splitlines() == [
        "step 20  loss 3.500  9 tokens/s, 20% done",
        "step 40  loss 3.500  5 tokens/s, 40% done",
    ]


def test_a_resumed_run_does_not_say_again_what_was_said_before_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(shown=True) as progress:
        progress.training(RECIPE, board=None)(40, record(10, 20, 35))
    line, _ = capsys.readouterr().err.splitlines()
    assert line.startswith("step 35: ")


def test_nothing_is_said_where_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(shown=False) as progress:
        progress.tokenising(2 * CHARACTERS_WORTH_A_BAR)(10, 10)
        progress.training(RECIPE, board=None)(10, record(10))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["[red]o[/red]", "[/dim] a", "[o|a]:dog: \\[b] c\\", "[dim]"])
def test_a_sample_is_shown_as_written(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with Progress(shown=True) as progress:
        progress.training(RECIPE, board=None)(10, record(10, sample=text))
    assert capsys.readouterr().err.splitlines()[1] == text


def test_texts_of_every_length_can_be_tokenised_under_a_bar() -> None:
    with Progress(shown=True) as progress:
        for n_characters in (0, CHARACTERS_WORTH_A_BAR):
            progress.tokenising(n_characters)(n_characters, 5)
