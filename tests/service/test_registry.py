"""Several models in one process: picked by name, counted by name, swapped in one place."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from service.app import create_app
from service.models import Model, load_model
from service.registry import Registry, load_models, read_sources
from service.settings import Settings, read_settings
from tests.service.conftest import running

TINY = ["tiny-char-mhsa", "tiny-char-mlp-mixer"]


@pytest_asyncio.fixture
async def two(model_of: Callable[..., Model]) -> AsyncIterator[httpx.AsyncClient]:
    """A service of both mixers."""
    registry = Registry([model_of("mhsa"), model_of("mlp_mixer")])
    async with running(create_app(Settings(), registry, n_workers=1)) as client:
        yield client


@pytest.mark.parametrize("route", ["/fill-mask", "/embed", "/attention"])
async def test_a_request_picks_its_model_and_gets_the_first_without_one(
    two: httpx.AsyncClient, route: str
) -> None:
    async def ask(**model: str) -> object:
        return (await two.post(route, json={"inputs": "To [MASK]", **model})).json()

    first, second = [await ask(model=name) for name in TINY]
    assert await ask() == first
    assert second != first


@pytest.mark.parametrize("route", ["/fill-mask", "/embed", "/attention"])
async def test_an_unknown_model_is_404_and_names_those_there_are(
    two: httpx.AsyncClient, route: str
) -> None:
    answer = await two.post(route, json={"inputs": "a [MASK]", "model": "gpt"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_model")
    assert answer.json()["error"].endswith(f"there is: {', '.join(TINY)}.")


async def test_info_tells_of_each_model_and_of_all_names(two: httpx.AsyncClient) -> None:
    default = (await two.get("/info")).json()
    assert (default["model"], default["models"]) == (TINY[0], TINY)
    other = (await two.get("/info", params={"model": TINY[1]})).json()
    assert (other["model"], other["mixer"]) == (TINY[1], "mlp_mixer")
    unknown = await two.get("/info", params={"model": "gpt"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_model")


async def test_metrics_count_by_the_name_of_the_model(two: httpx.AsyncClient) -> None:
    for name in (TINY[1], "gpt"):
        await two.post("/embed", json={"inputs": ["a", "b"], "model": name})
    text = (await two.get("/metrics")).text
    assert f'maskwright_texts_total{{model="{TINY[1]}",task="embed"}} 2.0' in text
    assert f'maskwright_texts_total{{model="{TINY[0]}",task="embed"}} 0.0' in text
    assert "gpt" not in text


async def test_a_swapped_model_answers_the_next_request(model_of: Callable[..., Model]) -> None:
    old, other = model_of("mhsa"), model_of("mlp_mixer")
    registry = Registry([old])
    new = Model(other.artefact, other.engine.provider, name=old.name)
    async with running(create_app(Settings(), registry, n_workers=1)) as client:
        before = (await client.post("/embed", json={"inputs": "a"})).json()
        assert registry.swap(new) is old
        after = (await client.post("/embed", json={"inputs": "a"})).json()
    assert before != after
    with pytest.raises(KeyError):
        registry.swap(other)


def test_an_artefact_is_served_under_the_name_it_is_given(artefact: Path) -> None:
    registry = load_models(f"first={artefact},second={artefact}", device="cpu")
    assert registry.names == ["first", "second"]
    assert registry.find(None).name == "first"


def test_bundled_models_are_named_without_a_directory() -> None:
    registry = load_models("shakespeare-mhsa,mixer=shakespeare-mlp-mixer", device="cpu")
    assert registry.names == ["shakespeare-mhsa", "mixer"]


def test_the_flag_may_be_repeated() -> None:
    settings = read_settings(["--model", "a=x", "--model", "b=y"], {"MASKWRIGHT_MODEL": "c"})
    assert read_sources(settings.model) == [("a", "x"), ("b", "y")]


def test_a_directory_may_have_an_equals_sign_in_its_path() -> None:
    assert read_sources("/models/a=b, c=/x/d=e") == [(None, "/models/a=b"), ("c", "/x/d=e")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b=x", "a name is at most 64 letters"),
        ("=x", "a name is at most 64 letters"),
        ("a=x,a=y", "gives a name twice"),
    ],
)
def test_a_name_that_cannot_be_one_stops_the_start(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_sources(text)


def test_two_artefacts_of_one_name_stop_the_start_and_the_way_out_is_told(artefact: Path) -> None:
    with pytest.raises(ValueError, match=r"two models are called .*; name them: NAME=DIR"):
        load_models(f"{artefact},{artefact}", device="cpu")


def test_a_model_takes_its_artefacts_name_unless_another_is_given(artefact: Path) -> None:
    assert load_model(str(artefact), device="cpu").name.startswith("tiny-char-")
    assert load_model(str(artefact), device="cpu", name="other").name == "other"
