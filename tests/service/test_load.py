"""The load generator: counts what is answered, keeps its connections, tells what was lost."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from model.tokenizer import Tokenizer
from service.load import Ask, Driver
from service.load_cli import main
from service.workload import LONGEST, asks, from_file, masked, passages

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-compute-tokens: 7\r\n\r\n[]"


@contextlib.asynccontextmanager
async def answering(
    reply: Callable[[int], Awaitable[bytes]],
) -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """A server that answers the n-th request with `reply(n)`; its URL and connections."""
    connections: list[asyncio.StreamWriter] = []
    n_requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_requests
        connections.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                n_requests += 1
                writer.write(await reply(n_requests))
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
        for writer in connections:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def good(n: int) -> bytes:
    return GOOD


async def test_each_connection_is_kept_and_tokens_come_from_the_header() -> None:
    async with answering(good) as (url, connections):
        requests = asks(passages(8, seed=0), url, "/embed")
        driver = Driver(url, requests, seconds=0.2, warmup=0.05, connections=3, keep_every=1)
        load = await driver.run()
    assert len(connections) == 3
    assert not load.errors
    assert load.n_tokens == 7 * len(load.latencies) > 0
    assert load.kept[0][1] == b"[]"
    assert load.figures()["requests"] == load.n_texts


async def test_what_fails_is_counted_and_not_as_answered() -> None:
    async def failing(n: int) -> bytes:
        return b"HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

    async with answering(failing) as (url, _):
        load = await Driver(
            url, asks(passages(8, seed=0), url, "/embed"), seconds=0.1, warmup=0
        ).run()
    assert load.errors["status 503"] > 0
    assert not load.latencies


async def test_at_a_rate_latency_counts_from_when_a_request_was_due() -> None:
    gate = asyncio.Event()

    async def late(n: int) -> bytes:
        await gate.wait()
        return GOOD

    async with answering(late) as (url, _):
        ask = asks(passages(1, seed=0), url, "/embed")
        running = asyncio.ensure_future(
            Driver(url, ask, seconds=0.2, warmup=0, rate=100, seed=1).run()
        )
        asyncio.get_running_loop().call_later(0.3, gate.set)
        load = await running
    assert len(load.latencies) > 5
    assert min(load.latencies) >= 0.1  # the last was due at 0.2 s at most


async def test_a_chunked_answer_is_read_to_its_end() -> None:
    async def chunked(n: int) -> bytes:
        return (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n"
        )

    async with answering(chunked) as (url, _):
        ask = [Ask(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 1, 1)]
        load = await Driver(url, ask, seconds=0.05, warmup=0, keep_every=1).run()
    assert {body for _, body in load.kept} == {b"[1]"}


def test_passages_have_their_lengths_in_tokens_and_stay_below_the_longest(
    char_tokenizer: Tokenizer,
) -> None:
    samples = passages(400, seed=3, tokenizer=char_tokenizer, longest=64)
    lengths = sorted(s.n_tokens or 0 for s in samples)
    assert lengths[-1] <= 64
    assert 14 <= lengths[200] <= 20  # 20, less the word that did not fit
    assert all(len(char_tokenizer.encode(s.text).ids) == s.n_tokens for s in samples)
    assert passages(5, seed=3) == passages(5, seed=3) != passages(5, seed=4)
    assert max(len(s.text.split()) for s in passages(400, seed=3)) <= LONGEST


def test_a_masked_text_has_one_mask_and_is_counted_anew(char_tokenizer: Tokenizer) -> None:
    samples = passages(20, seed=0, tokenizer=char_tokenizer, longest=64)
    for sample in masked(samples, seed=0, tokenizer=char_tokenizer):
        assert sample.text.count("[MASK]") == 1
        assert sample.n_tokens == len(char_tokenizer.encode(sample.text).ids)


def test_requests_carry_as_many_texts_as_asked_in_the_field_that_is_named() -> None:
    (ask,) = asks(
        passages(3, seed=0), "http://host:1", "/v1", n_texts=3, field="input", extra={"model": "m"},
        headers=["Authorization: Bearer k"],
    )  # fmt: skip
    head, _, body = ask.data.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1 HTTP/1.1\r\nHost: host:1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in head
    assert (len(json.loads(body)["input"]), json.loads(body)["model"]) == (3, "m")
    assert (ask.n_texts, ask.n_tokens) == (3, None)


def test_texts_of_a_file_are_its_lines_or_the_objects_of_a_jsonl(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.jsonl").write_text('{"text": "one", "tokens": 3}\n{"text": "two"}\n')
    (tmp_path / "c.jsonl").write_text('{"txt": "one"}\n')
    assert [s.text for s in from_file(tmp_path / "a.txt")] == ["one", "two"]
    assert [s.n_tokens for s in from_file(tmp_path / "b.jsonl")] == [3, None]
    with pytest.raises(ValueError, match=r"c.jsonl, line 1: "):
        from_file(tmp_path / "c.jsonl")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["ftp://x"], "http://HOST:PORT is wanted"),
        (["http://127.0.0.1:1", "--extra", "[]"], "a JSON object is wanted"),
        (["http://127.0.0.1:1", "--texts", "9999"], "requests of 9999 were asked for"),
    ],
)
def test_the_command_refuses_what_it_cannot_send(
    flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == 2
    assert reason in capsys.readouterr().err
