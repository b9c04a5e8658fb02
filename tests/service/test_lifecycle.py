"""Ready means: loaded, warm, not ending, and the golden answers are right when computed anew."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from service.app import create_app
from service.engine import Sessions
from service.errors import Draining, NotReady
from service.lifecycle import Lifecycle
from service.metrics import Metrics
from service.models import Model
from service.registry import Registry
from service.settings import Settings
from tests.service.conftest import running


class Check:
    """A check of golden answers that says what it is told to."""

    def __init__(self) -> None:
        self.wrong: str | None = None
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.wrong:
            raise ValueError(self.wrong)


def lifecycle(check: Callable[[], None], *, check_seconds: float) -> Lifecycle:
    return Lifecycle(Metrics(CollectorRegistry()), check=check, check_seconds=check_seconds)


async def test_it_is_not_ready_before_its_start_nor_while_it_drains() -> None:
    state = lifecycle(Check(), check_seconds=0)
    with pytest.raises(NotReady):
        await state.probe()
    state.start()
    await state.probe()
    state.drain()
    with pytest.raises(Draining):
        await state.probe()


async def test_a_probe_computes_the_golden_answers_anew_when_they_are_old() -> None:
    check = Check()
    state = lifecycle(check, check_seconds=3600)
    state.start()
    await state.probe()
    assert check.calls == 0
    state = lifecycle(check, check_seconds=1e-9)
    state.start()
    await state.probe()
    assert check.calls == 1


async def test_wrong_answers_make_it_not_ready_with_the_reason_until_they_are_right() -> None:
    check = Check()
    state = lifecycle(check, check_seconds=1e-9)
    state.start()
    check.wrong = "pooled_mean is 1.0e+00 off"
    with pytest.raises(NotReady, match=r"pooled_mean is 1\.0e\+00 off"):
        await state.probe()
    assert not state.ready
    check.wrong = None
    await state.probe()
    assert state.ready


async def test_a_failure_is_told_once_and_stays() -> None:
    state, told = lifecycle(Check(), check_seconds=0), []
    state.start()
    state.when_failed(lambda: told.append(state.failure))
    state.fail("a batch has run for 60 s")
    state.fail("another")
    assert told == ["a batch has run for 60 s"]
    with pytest.raises(NotReady, match="a batch has run for 60 s"):
        await state.probe()


class Wrong(Model):
    """A model whose answers can go wrong after it was loaded."""

    off = False

    def verify(self) -> None:
        sessions = self.engine.sessions
        if self.off:
            self.engine.sessions = lambda graph: Off(sessions(graph))
        try:
            super().verify()
        finally:
            self.engine.sessions = sessions


class Off:
    """Sessions whose answers are off."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def run(self, inputs: Any, outputs: Any) -> list[Any]:
        return [array + np.float32(1e-3) for array in self._sessions.run(inputs, outputs)]


async def test_a_model_that_answers_wrongly_is_not_ready_and_says_which_output_is_off(
    bundled: Model,
) -> None:
    model = Wrong(bundled.artefact, bundled.engine.provider)
    app = create_app(Settings(check_seconds=1e-9), Registry([model]), n_workers=1)
    async with running(app) as client:
        assert (await client.get("/readyz")).status_code == 200
        model.off = True
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["code"] == "not_ready"
        assert "off its golden answer" in answer.json()["error"]
        assert (await client.get("/livez")).status_code == 200
        model.off = False
        assert (await client.get("/readyz")).status_code == 200


async def test_a_failed_service_is_neither_live_nor_ready(bundled: Model) -> None:
    app = create_app(Settings(), Registry([bundled]), n_workers=1)
    async with running(app) as client:
        app.state.lifecycle.fail("a batch has run for 60 s")
        for path in ("/livez", "/readyz", "/health", "/v2/health/live", "/v2/health/ready"):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert "a batch has run for 60 s" in answer.json()["error"]
