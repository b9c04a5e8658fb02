"""What strangers send to the socket: the right status each, never a 500, never a wait for ever."""

import asyncio
import json
import re
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.service.conftest import Server, server_process

RECEIVE_SECONDS = 1.0
BODY = b'{"inputs": "to b[MASK]"}'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that waits one second for a request, with a small limit on bodies."""
    flags = ("--receive-seconds", str(RECEIVE_SECONDS), "--max-body-bytes", "65536")
    with server_process(*flags, "--max-connections", "200") as server:
        yield server
        assert server.process.poll() is None
        assert httpx.get(f"{server.url}/livez").status_code == 200
        text = httpx.get(f"{server.url}/metrics").text
        assert not [line for line in text.splitlines() if 'class="5xx"' in line and "503" in line]
        assert server.stop() == 0


def connected(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def exchange(server: Server, data: bytes) -> bytes:
    """All that comes back until the server closes; the client says no more after `data`."""
    with connected(server) as client:
        client.sendall(data)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


def post(*fields: bytes, body: bytes = BODY, path: bytes = b"/fill-mask") -> bytes:
    """A request that closes after its answer."""
    lines = [b"POST " + path + b" HTTP/1.1", b"Connection: close", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


HOST = b"Host: a"
LENGTH = b"Content-Length: %d" % len(BODY)


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


TE = b"Transfer-Encoding: chunked"


@dataclass(frozen=True)
class Case:
    sent: bytes
    status: int
    code: str | None = None


CASES = {
    "a good request": Case(post(HOST, LENGTH), 200),
    "the same in chunks of a byte": Case(post(HOST, TE, body=chunked(BODY, 1)), 200),
    "an old client": Case(b"GET /livez HTTP/1.0\r\n\r\n", 200),
    "trailers": Case(post(HOST, TE, body=chunked(BODY, 9)[:-2] + b"X-A: 1\r\n\r\n"), 200),
    "an offer of HTTP/2": Case(
        post(HOST, LENGTH, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"), 200
    ),
    "an offer of a websocket": Case(
        post(HOST, LENGTH, b"Connection: Upgrade", b"Upgrade: websocket"), 200
    ),
    "garbage": Case(b"\x00\x01\x02\x03\r\n\r\n", 400, "malformed_request"),
    "TLS": Case(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), 400),
    "HTTP/2 without asking": Case(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a method that is none": Case(b"FETCH / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a tunnel": Case(b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a path outside ASCII": Case(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a line break in a path": Case(b"GET /a\r\nb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no host": Case(post(LENGTH), 400, "malformed_request"),
    "two hosts": Case(post(HOST, b"Host: b", LENGTH), 400, "malformed_request"),
    "a folded field": Case(post(HOST, b"X-A: 1\r\n 2", LENGTH), 400),
    "a space before the colon": Case(post(HOST, b"X-A : 1", LENGTH), 400),
    "a field without a name": Case(post(HOST, b": 1", LENGTH), 400),
    "NUL in a field": Case(post(HOST, b"X-A: \x00", LENGTH), 400),
    "length and chunks at once": Case(post(HOST, LENGTH, TE, body=chunked(BODY, 9)), 400),
    "two lengths": Case(post(HOST, LENGTH, b"Content-Length: 3"), 400),
    "a length below zero": Case(post(HOST, b"Content-Length: -1"), 400),
    "a length that is no number": Case(post(HOST, b"Content-Length: 1e3"), 400),
    "a length beyond counting": Case(post(HOST, b"Content-Length: " + b"9" * 40), 400),
    "an unknown coding": Case(post(HOST, b"Transfer-Encoding: gzip"), 400),
    "a hidden chunked": Case(post(HOST, b"Transfer-Encoding: xchunked"), 400),
    "a chunk size that is none": Case(post(HOST, TE, body=b"zz\r\n"), 400),
    "a chunk longer than stated": Case(post(HOST, TE, body=b"1\r\nabc\r\n0\r\n\r\n"), 400),
    "a long field": Case(post(HOST, b"X-A: " + b"a" * 20_000, LENGTH), 431, "headers_too_large"),
    "two megabytes of a field": Case(post(HOST, b"X-A: " + b"a" * 2_000_000), 431),
    "a long path": Case(post(HOST, LENGTH, path=b"/" + b"a" * 20_000), 431, "headers_too_large"),
    "many fields": Case(post(HOST, *[b"X-A: 1"] * 2000, LENGTH), 431, "headers_too_large"),
    "many long fields": Case(post(HOST, *[b"X-A: " + b"a" * 200] * 90, LENGTH), 431),
    "a long body, announced": Case(
        post(HOST, b"Content-Length: 100000000", body=b"a" * 200_000), 413, "body_too_large"
    ),
    "a long body, in chunks": Case(
        post(HOST, TE, body=chunked(b"a" * 400_000, 9000)), 413, "body_too_large"
    ),
    "chunks that are all framing": Case(
        post(HOST, TE, body=(b"1;" + b"a" * 4000 + b"\r\nx\r\n") * 400), 400
    ),
    "a compressed body": Case(post(HOST, LENGTH, b"Content-Encoding: gzip"), 415),
    "a form": Case(post(HOST, LENGTH, b"Content-Type: application/x-www-form-urlencoded"), 415),
    "an unknown path": Case(post(HOST, LENGTH, path=b"/../../etc/passwd"), 404, "not_found"),
    "a deadline that is none": Case(post(HOST, LENGTH, b"X-Timeout-Ms: -1"), 422, "invalid_field"),
    "nesting without end": Case(
        post(HOST, b"Content-Length: 60000", body=b"[" * 60000), 400, "malformed_json"
    ),
    "a number of 5,000 digits": Case(
        post(HOST, b"Content-Length: 5014", body=b'{"inputs":1' + b"0" * 4999 + b" }  "), 400
    ),
    "not a number": Case(post(HOST, b"Content-Length: 15", body=b'{"inputs": NaN}'), 400),
    "half a surrogate pair": Case(
        post(HOST, b"Content-Length: 20", body=b'{"inputs": "\\ud800"}'), 400
    ),
    "bytes that are no text": Case(
        post(HOST, b"Content-Length: 15", body=b'{"inputs": "\xff"}'), 400
    ),
    "nothing where a body should be": Case(post(HOST, body=b""), 400, "malformed_json"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_sent_is_answered_with_its_status(server: Server, name: str) -> None:
    case = CASES[name]
    answer = exchange(server, case.sent)
    assert statuses(answer) == [case.status], answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"server:" not in head.lower()
    assert b"x-request-id: " in head
    if case.status >= 400:
        error = json.loads(body)
        assert set(error) >= {"error", "error_type", "code"}
        assert case.code in (None, error["code"])


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 25


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    requests = [f"GET /{n} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {n}\r\n\r\n" for n in range(500)]
    requests[-1] = requests[-1].replace("Host", "Connection: close\r\nHost")
    answer = exchange(server, "".join(requests).encode())
    assert statuses(answer) == [404] * 500
    assert re.findall(rb"x-request-id: (\d+)", answer) == [b"%d" % n for n in range(500)]


def test_what_came_before_a_malformed_request_is_answered_before_it(server: Server) -> None:
    good = post(HOST, LENGTH).replace(b"Connection: close\r\n", b"")
    answer = exchange(server, good + good + b"\x00\r\n\r\n")
    assert statuses(answer) == [200, 200, 400]


def test_a_connection_goes_on_after_a_request_that_was_refused_in_form(server: Server) -> None:
    bad = post(HOST, b"Content-Length: 2", body=b"{}").replace(b"Connection: close\r\n", b"")
    assert statuses(exchange(server, bad + post(HOST, LENGTH))) == [422, 200]


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(server: Server) -> None:
    with connected(server) as client:
        client.sendall(post(HOST, LENGTH, b"Expect: 100-continue", body=b""))
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(BODY)
        assert statuses(client.recv(65536)) == [200]


def test_a_body_that_is_too_long_is_refused_before_it_is_asked_for(server: Server) -> None:
    expecting = post(HOST, b"Content-Length: 100000", b"Expect: 100-continue", body=b"")
    assert statuses(exchange(server, expecting)) == [413]


SLOW = {
    "nothing": (b"", []),
    "line breaks": (b"\r\n\r\n", []),
    "half a head": (b"POST /fill-mask HTTP/1.1\r\nHost: a\r\nX-A:", [408]),
    "half a body": (post(HOST, LENGTH, body=BODY[:5]), [408]),
    "half a body that nobody reads": (
        b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", [200],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_who_does_not_finish_a_request_is_let_go_in_time(server: Server, name: str) -> None:
    sent, expected = SLOW[name]
    begun = time.monotonic()
    assert statuses(exchange(server, sent)) == expected
    assert time.monotonic() - begun < RECEIVE_SECONDS + 3  # it may linger for two


def test_a_request_that_trickles_in_is_let_go_as_well(server: Server) -> None:
    begun = time.monotonic()
    with connected(server) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n")
        client.settimeout(0.1)
        answer = b""
        while time.monotonic() - begun < 5 and not answer:
            client.sendall(b"X-A: 1\r\n")
            try:
                answer = client.recv(65536)
            except TimeoutError:
                continue
    assert statuses(answer) == [408]
    assert time.monotonic() - begun < RECEIVE_SECONDS + 1


def test_who_does_not_read_a_large_answer_is_let_go(server: Server) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.url.removeprefix("http://").split(":")
        client.connect((host, int(port)))
        body = json.dumps({"inputs": ["to be or not to be, that is the question"] * 14}).encode()
        client.sendall(post(HOST, b"Content-Length: %d" % len(body), body=body, path=b"/attention"))
        begun = time.monotonic()
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        gauge = "maskwright_http_connections"
        while time.monotonic() - begun < 12:
            open_now = re.findall(rf"(?m)^{gauge} (\S+)$", httpx.get(f"{server.url}/metrics").text)
            if open_now == ["1.0"]:  # the one that asks
                return
            time.sleep(0.2)  # between two looks at the server
    pytest.fail("it is still connected")


def test_who_does_not_read_even_a_small_answer_is_let_go(server: Server) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        host, port = server.url.removeprefix("http://").split(":")
        client.connect((host, int(port)))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        begun = time.monotonic()
        while time.monotonic() - begun < 12:
            text = httpx.get(f"{server.url}/metrics").text
            if "\nmaskwright_http_connections 1.0\n" in text and time.monotonic() - begun > 1:
                return
            time.sleep(0.2)  # between two looks at the server
    pytest.fail("it is still connected")


async def test_a_good_client_is_served_beside_hundreds_of_slow_ones(server: Server) -> None:
    async def seconds(client: httpx.AsyncClient) -> float:
        begun = time.perf_counter()
        answer = await client.post("/fill-mask", content=BODY)
        assert answer.status_code == 200
        return time.perf_counter() - begun

    host, port = server.url.removeprefix("http://").split(":")
    async with httpx.AsyncClient(base_url=server.url) as client:
        before = [await seconds(client) for _ in range(50)]
        writers = []
        for _ in range(150):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /fill-mask HTTP/1.1\r\nHost: a\r\n")
            writers.append(writer)
        meanwhile = [await seconds(client) for _ in range(50)]
        for writer in writers:
            writer.close()
    assert statistics.median(meanwhile) < 2 * statistics.median(before) + 0.01


def test_more_connections_than_the_limit_are_turned_away_and_told_so(server: Server) -> None:
    held = [connected(server) for _ in range(201)]
    try:
        answers = [statuses(client.recv(65536)) for client in held[200:]]
        assert answers == [[503]]
    finally:
        for client in held:
            client.close()
    for _ in range(100):
        try:
            answer = httpx.get(f"{server.url}/livez")
        except httpx.TransportError:
            continue
        if answer.status_code == 200:
            return
        time.sleep(0.05)  # until it has seen them go
    pytest.fail("it takes nobody any more")
