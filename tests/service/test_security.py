"""Who may ask, what browsers may do, and what leaves the process."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from service.app import create_app
from service.errors import RateLimited, Unauthorized
from service.models import Model
from service.registry import Registry
from service.security import Keys
from service.settings import Settings
from tests.service.conftest import running


def line(key: str, name: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()}  {name}\n"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"# who may ask\n\n{line('first-key', 'alice')}{line('second-key', '-')}")
    return path


@pytest_asyncio.fixture
async def guarded(bundled: Model, key_file: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(api_keys=str(key_file))
    async with running(create_app(settings, Registry([bundled]), n_workers=1)) as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("third-key"),
        bearer(""),
        bearer("first-key-and-more"),
        bearer("x" * 600),
        {"authorization": "first-key"},
        {"authorization": "Basic first-key"},
        {"x-api-key": "first-key"},
        bearer(hashlib.sha256(b"first-key").hexdigest()),
    ],
)
async def test_without_a_valid_key_nothing_is_answered(
    guarded: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for method, path in (("POST", "/embed"), ("GET", "/info"), ("GET", "/metrics"), ("GET", "/no")):
        answer = await guarded.request(method, path, json={"inputs": "a"}, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/embed", "/embed"),
        ("/v2/models/embed/infer", "/v2/models/{name}/infer"),
        ("/v2/models/a/versions/b/infer", "/v2/models/{name}/infer"),
    ],
)
async def test_who_is_turned_away_is_counted_under_the_route(
    guarded: httpx.AsyncClient, path: str, route: str
) -> None:
    await guarded.post(path, json={"inputs": "a"})
    text = (await guarded.get("/metrics", headers=bearer("first-key"))).text
    labels = f'method="POST",route="{route}",status_class="4xx"'
    assert f"maskwright_http_requests_total{{{labels}}} 1.0" in text
    assert 'maskwright_refused_total{reason="unauthorized"} 1.0' in text


@pytest.mark.parametrize("key", ["first-key", "second-key"])
async def test_each_key_is_let_in(guarded: httpx.AsyncClient, key: str) -> None:
    answer = await guarded.post("/embed", json={"inputs": "a"}, headers=bearer(key))
    assert answer.status_code == 200


async def test_probes_need_no_key(guarded: httpx.AsyncClient) -> None:
    for path in ("/livez", "/readyz", "/health", "/v2/health/live", "/v2/health/ready"):
        assert (await guarded.get(path)).status_code == 200


def test_keys_are_rotated_by_reading_their_file_anew(key_file: Path) -> None:
    keys = Keys(key_file)
    assert keys.check(b"Bearer first-key") == "alice"
    key_file.write_text(line("third-key", "alice"))
    keys.reload()
    assert keys.check(b"bearer third-key") == "alice"
    with pytest.raises(Unauthorized):
        keys.check(b"Bearer first-key")


def test_a_file_that_is_wrong_leaves_the_old_keys_valid_and_is_not_quoted(key_file: Path) -> None:
    keys = Keys(key_file)
    for text in ("a-key-in-the-open alice\n", "", "# nobody\n", "\udcff"):
        key_file.write_text(text, errors="surrogateescape")
        with pytest.raises(ValueError, match="api_keys=") as refused:
            keys.reload()
        assert "a-key-in-the-open" not in str(refused.value)
    key_file.unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        keys.reload()
    assert keys.check(b"Bearer first-key") == "alice"


def test_a_key_may_have_so_many_requests_open_and_no_more(key_file: Path) -> None:
    keys = Keys(key_file, max_open=2)
    with keys.held("alice"), keys.held("alice"):
        with pytest.raises(RateLimited), keys.held("alice"):
            pass
        with keys.held("bob"):
            pass
    with keys.held("alice"):
        pass


def test_a_key_may_send_so_many_requests_a_minute_and_each_share_of_it_comes_back(
    key_file: Path,
) -> None:
    clock = [0.0]
    keys = Keys(key_file, per_minute=3, now=lambda: clock[0])

    def sent(name: str) -> bool:
        try:
            with keys.held(name):
                return True
        except RateLimited:
            return False

    assert [sent("alice") for _ in range(4)] == [True, True, True, False]
    assert sent("bob")
    clock[0] = 19.9
    assert not sent("alice")
    clock[0] = 20.0
    assert [sent("alice"), sent("alice")] == [True, False]
    clock[0] = 1000.0  # idle time does not add up
    assert [sent("alice") for _ in range(4)] == [True, True, True, False]


async def test_who_sends_too_often_is_told_when_to_come_again(
    bundled: Model, key_file: Path
) -> None:
    settings = Settings(api_keys=str(key_file), max_per_minute_per_key=1)
    async with running(create_app(settings, Registry([bundled]), n_workers=1)) as client:
        headers = bearer("first-key")
        assert (await client.get("/info", headers=headers)).status_code == 200
        answer = await client.get("/info", headers=headers)
        assert answer.status_code == 429
        assert answer.json()["code"] == "rate_limited"
        assert 55 <= int(answer.headers["retry-after"]) <= 60
        assert (await client.get("/livez", headers=headers)).status_code == 200


async def test_no_page_of_another_origin_may_read_an_answer(guarded: httpx.AsyncClient) -> None:
    headers = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    for method in ("GET", "OPTIONS"):
        answer = await guarded.request(method, "/embed", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_request_id_comes_back_and_a_forged_one_does_not(
    guarded: httpx.AsyncClient,
) -> None:
    answer = await guarded.get("/livez", headers={"x-request-id": "trace-1.a_B"})
    assert answer.headers["x-request-id"] == "trace-1.a_B"
    for forged in ("a b", "a" * 65, "<script>", ""):
        answer = await guarded.get("/livez", headers={"x-request-id": forged})
        assert answer.headers["x-request-id"] != forged
