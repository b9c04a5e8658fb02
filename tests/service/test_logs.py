"""A line for each request, one line each, and nothing in it that a client sent or must not know."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import httpx
import pytest

from service.logs import MAX_WAITING, JsonFormatter, TextFormatter, ThreadedHandler
from tests.service.conftest import Server, server_process

SECRET = "the secret of the [MASK] text"


@pytest.fixture(scope="module")
def lines() -> Iterator[list[dict[str, object]]]:
    """What a server logs about some good and bad requests."""
    with server_process("--log-format", "json", "--log-level", "debug") as server:
        ask(server)
        assert server.stop() == 0
        yield [json.loads(line) for line in server.lines()]


def ask(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        for number, body in enumerate(
            [
                {"inputs": SECRET},
                {"inputs": [SECRET, SECRET + "!"]},
                {"inputs": "secret, but no mask"},
                {"inputs": {"secret": SECRET}},
                {"inputs": SECRET, "secret": 1},
                {"inputs": "secret [MASK]", "parameters": {"targets": ["secret target"]}},
            ]
        ):
            client.post("/fill-mask", json=body, headers={"x-request-id": f"r{number}"})
        client.post("/embed", content=b'{"inputs": "secret\xff"}')
        client.get("/secret%0a%1b[31mpath?secret=1", headers={"authorization": "Bearer secret"})
        client.get("/livez", headers={"x-request-id": 'forged" $(x)'})


def test_each_request_has_a_line_with_where_its_time_went(lines: list[dict[str, object]]) -> None:
    requests = [line for line in lines if line["message"] == "request"]
    assert len(requests) == 9
    first = requests[0]
    assert (first["id"], first["route"], first["method"]) == ("r0", "/fill-mask", "POST")
    assert (first["status"], first["texts"], first["tokens"]) == (200, 1, 24)
    times = [float(str(first[name])) for name in ("tokenize_ms", "queue_ms", "run_ms", "total_ms")]
    assert all(t >= 0 for t in times)
    assert times[3] >= sum(times[:3]) - 0.01
    codes = [line.get("code") for line in requests[2:5]]
    assert codes == ["no_mask", "invalid_field", "invalid_field"]


def test_no_line_holds_what_a_client_sent(lines: list[dict[str, object]]) -> None:
    assert "secret" not in json.dumps(lines).lower()


def test_a_request_id_that_is_not_well_formed_is_replaced(lines: list[dict[str, object]]) -> None:
    probe = next(line for line in lines if line.get("route") == "/livez")
    assert len(str(probe["id"])) == 16
    assert probe["level"] == "debug"


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("a", logging.ERROR, "", 0, message, (), info)


def raised() -> ValueError:
    try:
        raise ValueError("what a client sent")
    except ValueError as error:
        return error


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_message_can_forge_a_line_or_steer_a_terminal(formatter: logging.Formatter) -> None:
    line = formatter.format(record("a\r\nb\x1b[31m\u2028\x9b"))
    assert len(line.splitlines()) == 1
    assert line.isprintable()


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_an_error_shows_where_it_comes_from_and_not_what_it_says(
    formatter: logging.Formatter,
) -> None:
    line = formatter.format(record("failed", raised()))
    assert "test_logs.py" in line
    assert "ValueError" in line
    assert "what a client sent" not in line


class Stuck(io.StringIO):
    """A pipe that nobody reads, until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        self.gate.wait(timeout=10)
        return super().write(text)


def test_a_reader_that_stands_still_does_not_stop_the_service_and_loss_is_told() -> None:
    stream = Stuck()
    handler = ThreadedHandler(stream)
    handler.setFormatter(JsonFormatter())
    for n in range(MAX_WAITING + 100):
        handler.emit(record(f"{n}"))
    stream.gate.set()
    handler.close()
    written = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    n_lost = MAX_WAITING + 100 - sum(message.isdigit() for message in written)
    assert n_lost > 0
    assert f"{n_lost} log lines were dropped: nobody reads them" in written
