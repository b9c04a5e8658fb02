"""Every setting of the service: one table, read once, as flags and as MASKWRIGHT_* variables."""

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "MASKWRIGHT_"


def _setting(
    default: Any, about: str, *, choices: tuple[str, ...] = (), low: float | None = None
) -> Any:
    metadata = {"about": about, "choices": choices, "low": low}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one process of the service is told at its start."""

    model: str = _setting(
        "english-mhsa",
        "artefact directory or name of a bundled one; NAME=DIR calls it NAME; repeat the flag, or "
        "separate by commas, for several, of which the first is the default",
    )
    device: str = _setting(
        "auto",
        "where graphs run; auto takes CUDA if it works; cuda fails to start without it",
        choices=("auto", "cpu", "cuda"),
    )
    precision: str = _setting(
        "auto",
        "of the graphs; auto is fp16 on CUDA, bf16 through OpenVINO where the processor has AMX, "
        "else fp32; int8 is taken by name only",
        choices=("auto", "fp32", "bf16", "int8", "fp16"),
    )
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8000, "port to listen on; 0 takes a free one", low=0)
    admin_host: str = _setting("127.0.0.1", "address of the admin port")
    admin_port: int = _setting(
        0,
        "port of its own for /metrics and /admin/reload; 0 for none, and /metrics on --port",
        low=0,
    )
    gpu_memory_mib: int = _setting(
        0, "most memory that one graph's arena takes of a GPU, weights included; 0 for any", low=0
    )
    threads: int = _setting(0, "worker threads on a CPU; 0 takes one per core", low=0)
    max_batch_cost: float = _setting(
        0.0,
        "most padded tokens in a batch; 0 takes 256 on a CPU, 512 through OpenVINO, 16,384 on CUDA",
        low=0,
    )
    max_queue_cost: float = _setting(
        65536.0, "padded tokens that may wait before new work is refused with 429", low=1
    )
    max_wait_seconds: float = _setting(
        1.0, "predicted wait for other requests' work from which one is refused with 429", low=0
    )
    max_texts: int = _setting(1024, "texts in one request", low=1)
    max_body_bytes: int = _setting(1_048_576, "bytes in a request's body", low=1)
    max_answer_bytes: int = _setting(
        16_777_216, "bytes in one answer, estimated before anything is computed", low=1
    )
    max_passes: int = _setting(
        4096, "passes through the model for one request that needs several a text", low=1
    )
    auto_truncate: bool = _setting(
        True, "cut texts that are too long unless the request says otherwise; false refuses them"
    )
    docs: bool = _setting(True, "serve /docs and /openapi.json")
    drain_delay: float = _setting(
        5.0, "seconds from SIGTERM on in which new work is still taken, until balancers know", low=0
    )
    drain_seconds: float = _setting(25.0, "time to finish open requests after that", low=0)
    receive_seconds: float = _setting(
        10.0, "time for a request to arrive in, from its first byte to its last", low=0.1
    )
    max_connections: int = _setting(4096, "connections held at once", low=1)
    check_seconds: float = _setting(
        60.0, "age from which a ready probe computes the golden answers anew; 0 for never", low=0
    )
    hang_seconds: float = _setting(
        60.0, "running time from which a batch is given up and the process ends", low=0.5
    )
    api_keys: str = _setting("", "file of the keys that may ask, a SHA-256 and a name each line")
    max_open_per_key: int = _setting(
        0, "requests that one key may have open; 0 for any number", low=0
    )
    max_per_minute_per_key: int = _setting(
        0, "requests that one key may send in a minute; 0 for any number", low=0
    )
    cors_origin: str = _setting(
        "", "origin whose web pages may ask, such as https://example.org; none if empty"
    )
    otlp_endpoint: str = _setting(
        "", "collector of OpenTelemetry traces, such as http://127.0.0.1:4318; none if empty"
    )
    workers: int = _setting(1, "processes; always 1, as one process serves one device", low=1)
    log_level: str = _setting(
        "info", "least severe log line", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "auto", "form of the log; auto is text at a terminal", choices=("auto", "json", "text")
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, low = getattr(self, field.name), field.metadata["low"]
            choices = field.metadata["choices"]
            if choices and value not in choices:
                raise ValueError(f"{field.name}={value!r}; one of: {', '.join(choices)}")
            if low is not None and not math.isfinite(value):
                raise ValueError(f"{field.name}={value}; a finite number is wanted")
            if low is not None and value < low:
                raise ValueError(f"{field.name}={value}; at least {low}")
        if self.workers > 1:
            raise ValueError(
                f"workers={self.workers}; one process serves one device, so that a batch holds "
                "all that waits: start one service for each device, behind a balancer"
            )
        for name in ("port", "admin_port"):
            if getattr(self, name) > 65535:
                raise ValueError(f"{name}={getattr(self, name)}; at most 65535")


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from flags, else from the environment, else their defaults.

    Raises:
        ValueError: A value is of the wrong kind or out of range, or a MASKWRIGHT_* variable is
            not one of ours.
    """
    given = vars(_parser().parse_args(arguments))
    if given["model"] is not None:
        given["model"] = ",".join(given["model"])
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    ours = {variable(name): name for name in fields}
    for key in environment:
        if key.startswith(PREFIX) and key not in ours:
            raise ValueError(f"{key} is no setting; there are: {', '.join(ours)}")
    values: dict[str, Any] = {}
    for key, name in ours.items():
        # An empty variable is one that a compose file or a shell left unset.
        text = given[name] if given[name] is not None else environment.get(key) or None
        if text is not None:
            values[name] = _parse(name, text, type(fields[name].default))
    return Settings(**values)


def _parse(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"{name}={text!r}; true or false")
        return text.lower() in ("true", "1")
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}={text!r}; a number is wanted") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-serve",
        description="Serve fill-mask, embeddings and attention of artefacts over HTTP.",
        epilog=f"Each flag is also a variable: --max-texts is {variable('max_texts')}.",
    )
    for field in dataclasses.fields(Settings):
        about = f"{field.metadata['about']} (default: {_written(field.default)})"
        # No type here: flags and variables are parsed alike, by `_parse`.
        action = "append" if field.name == "model" else "store"
        parser.add_argument(flag(field.name), help=about, metavar=_metavar(field), action=action)
    return parser


def _metavar(field: "dataclasses.Field[Any]") -> str:
    choices: tuple[str, ...] = field.metadata["choices"]
    return "|".join(choices) if choices else type(field.default).__name__.upper()


def _written(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
