"""Sessions: which answers whom, what they hold in memory, and a device whose memory runs out."""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from export.artefact import InvalidArtefact, load_artefact
from service.cuda import Bound, OutOfMemory
from service.engine import CALM, Engine, LoneOrShared, Pool
from service.errors import NoMemory
from service.models import Model, Work
from service.providers import PROVIDERS

INPUTS = {
    "input_ids": np.array([[5, 6, 7], [8, 9, 0]]),
    "lengths": np.array([3, 2]),
    "mask_positions": np.array([[0, 1]]),
}


class Named:
    """A session that says who it is, and waits."""

    def __init__(self, name: str, gate: threading.Event) -> None:
        self.name, self.gate, self.started = name, gate, threading.Event()

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[str]:
        self.started.set()
        assert self.gate.wait(10)
        return [self.name]


def test_a_lone_call_runs_on_every_core_and_one_beside_it_on_one() -> None:
    gate = threading.Event()
    one, every = Named("one", gate), Named("every", gate)
    sessions = LoneOrShared(one, every)
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.append(sessions.run({}, [])))
    first.start()
    assert every.started.wait(10)
    second = threading.Thread(target=lambda: found.append(sessions.run({}, [])))
    second.start()
    assert one.started.wait(10)
    gate.set()
    first.join()
    second.join()
    assert sorted(found) == [["every"], ["one"]]


def test_after_two_calls_have_met_some_come_alone_before_one_runs_on_every_core() -> None:
    gate = threading.Event()
    one, every = Named("one", gate), Named("every", gate)
    sessions = LoneOrShared(one, every)
    met = [threading.Thread(target=lambda: sessions.run({}, [])) for _ in range(2)]
    for thread in met:
        thread.start()
    assert one.started.wait(10)
    gate.set()
    for thread in met:
        thread.join()
    assert [sessions.run({}, []) for _ in range(CALM + 1)] == [["one"]] * CALM + [["every"]]


def test_a_pool_gives_a_session_to_one_call_at_a_time() -> None:
    gate = threading.Event()
    session = Named("only", gate)
    pool, found = Pool([session]), []
    threads = [threading.Thread(target=lambda: found.append(pool.run({}, []))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert session.started.wait(10)
    assert not found
    gate.set()
    for thread in threads:
        thread.join()
    assert found == [["only"]] * 3


def test_the_attention_graph_is_opened_by_its_first_request_and_then_checked(
    artefact_of: Callable[..., Path],
) -> None:
    model = Model(load_artefact(artefact_of("mhsa")), PROVIDERS["cpu"])
    model.verify()
    assert model.engine.opened == ["encode"]
    (answer,) = model.run("attention", [Work([5, 6, 7], frozenset({"mixing_weights"}))])
    assert isinstance(answer, dict)
    assert model.engine.opened == ["encode", "attention"]


def test_lone_and_shared_sessions_give_the_same_answers(artefact_of: Callable[..., Path]) -> None:
    artefact = load_artefact(artefact_of("mlp_mixer"))
    narrow, wide = (Engine(artefact, PROVIDERS["cpu"], n_threads=n) for n in (1, 2))
    names = ["pooled_mean", "mask_logprobs"]
    for one, two in zip(
        narrow.run("encode", INPUTS, names), wide.run("encode", INPUTS, names), strict=True
    ):
        np.testing.assert_allclose(one, two, atol=1e-5)


class Noting:
    """A session that notes the lengths it ran, and may be wrong."""

    def __init__(self, session: ort.InferenceSession, *, off: float = 0.0) -> None:
        self._session, self._off, self.lengths = session, off, set[int]()

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Any]:
        self.lengths.add(inputs["input_ids"].shape[1])
        return [array + self._off for array in self._session.run(outputs, inputs)]


def two_sessions(artefact: Path, *, off: float = 0.0) -> tuple[Model, list[Noting]]:
    """A model with a session for lone calls and one for those that meet, which may be wrong."""
    model = Model(load_artefact(artefact), PROVIDERS["cpu"])
    session = ort.InferenceSession(artefact / "encode.onnx", providers=["CPUExecutionProvider"])
    one, every = Noting(session, off=off), Noting(session)
    model.engine._opened["encode"] = LoneOrShared(one, every)
    return model, [one, every]


def test_every_session_is_warmed_up_at_every_length(artefact: Path) -> None:
    model, sessions = two_sessions(artefact)
    model.warm_up()
    for session in sessions:
        assert session.lengths == {8, 16, 24, 32}


def test_a_session_that_is_wrong_is_found_at_the_start_though_others_are_right(
    artefact: Path,
) -> None:
    model, _ = two_sessions(artefact, off=0.01)
    with pytest.raises(InvalidArtefact, match="off its golden answer"):
        model.verify_each()


def test_a_texts_cost_is_that_of_the_rows_its_provider_makes(artefact: Path) -> None:
    loaded = load_artefact(artefact)
    bucketed = dataclasses.replace(PROVIDERS["cpu"], length_buckets=(16, 32))
    work = Work([5] * 17, frozenset({"pooled_mean"}))
    for provider, n_tokens in ((PROVIDERS["cpu"], 18), (bucketed, 32)):
        model = Model(loaded, provider)
        assert model.item("encode", work).row_tokens == n_tokens
        assert model.padded([work])["input_ids"].shape[1] == n_tokens


def test_bound_arrays_give_the_answers_of_a_plain_run(artefact: Path) -> None:
    session = ort.InferenceSession(artefact / "encode.onnx", providers=["CPUExecutionProvider"])
    names = ["top_ids", "pooled_max"]
    bound = Bound(session, device="cpu").run(INPUTS, names)
    for found, expected in zip(bound, session.run(names, INPUTS), strict=True):
        np.testing.assert_array_equal(found, expected)


class Small:
    """A session of a device that holds two rows."""

    def __init__(self, session: ort.InferenceSession, message: str) -> None:
        self._session, self._message = session, message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any) -> None:
        self._session.run_with_iobinding(binding)
        if binding.get_outputs()[0].shape()[0] > 2:
            raise RuntimeError(self._message)


def limited(artefact: Path, message: str) -> Model:
    """A model on such a device."""
    model = Model(load_artefact(artefact), PROVIDERS["cpu"])
    session = ort.InferenceSession(artefact / "encode.onnx", providers=["CPUExecutionProvider"])
    model.engine._opened["encode"] = Bound(Small(session, message), device="cpu")
    return model


FULL = "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1"


def test_a_batch_that_does_not_fit_the_memory_is_split_until_it_does(artefact: Path) -> None:
    model, wanted = limited(artefact, FULL), frozenset({"pooled_mean"})
    works = [Work([5 + n, 6, 7], wanted) for n in range(7)]
    whole = Model(load_artefact(artefact), PROVIDERS["cpu"]).run("encode", works)
    for found, expected in zip(model.run("encode", works), whole, strict=True):
        assert isinstance(found, dict)
        assert isinstance(expected, dict)
        np.testing.assert_allclose(found["pooled_mean"], expected["pooled_mean"], atol=1e-5)


def test_a_text_that_does_not_fit_alone_is_answered_with_503(artefact: Path) -> None:
    model = limited(artefact, "CUDA failure 2: out of memory")
    model.engine._opened["encode"] = Never()
    (found,) = model.run("encode", [Work([5], frozenset({"pooled_mean"}))])
    assert isinstance(found, NoMemory)
    assert found.status == 503


class Never:
    """Sessions whose device is full."""

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str]) -> list[Any]:
        raise OutOfMemory


def test_any_other_failure_is_no_lack_of_memory(artefact: Path) -> None:
    model = limited(artefact, "CUBLAS_STATUS_EXECUTION_FAILED")
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        model.run("encode", [Work([5], frozenset({"pooled_mean"}))] * 3)
