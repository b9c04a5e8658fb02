"""The command `maskwright-bench`."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from service.load import Driver
from service.workload import asks, from_file, masked, passages

N_PASSAGES = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a service; 0 if every request was answered, 1 if not, 2 if it could not be asked."""
    options = _parser().parse_args(arguments)
    try:
        driver = _driver(options)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            load = runner.run(driver.run())
    except (ValueError, OSError) as error:
        print(f"maskwright-bench: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    how = {"connections": options.connections} if options.rate is None else {"rate": options.rate}
    print(json.dumps({"route": options.route, **how, **load.figures()}))  # noqa: T201 likewise
    return 1 if load.errors or not load.latencies else 0


def _driver(options: argparse.Namespace) -> Driver:
    samples = from_file(options.data) if options.data else passages(N_PASSAGES, seed=options.seed)
    if options.mask:
        samples = masked(samples, seed=options.seed)
    extra = json.loads(options.extra)
    if not isinstance(extra, dict):
        raise ValueError(f"extra={options.extra!r}; a JSON object is wanted")
    requests = asks(
        samples,
        options.url,
        options.route,
        n_texts=options.texts,
        field=options.field,
        extra=extra,
        headers=options.header,
    )
    return Driver(
        options.url,
        requests,
        seconds=options.seconds,
        warmup=options.warmup,
        connections=options.connections,
        rate=options.rate,
        timeout=options.timeout,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-bench",
        description="Load an HTTP service with texts and print what it made of it, as JSON: "
        "requests, texts and tokens a second, latencies, errors.",
    )
    parser.add_argument("url", help="of the service: http://127.0.0.1:8000")
    parser.add_argument("--route", default="/embed", help="(/embed)")
    parser.add_argument("--field", default="inputs", help="of the body, for the texts (inputs)")
    parser.add_argument("--extra", default="{}", metavar="JSON", help="further fields of the body")
    parser.add_argument("--header", action="append", default=[], metavar="LINE", help="repeatable")
    parser.add_argument("--texts", type=int, default=1, metavar="N", help="in a request (1)")
    parser.add_argument("--mask", action="store_true", help="one word of each text is [MASK]")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help='a text each line, or .jsonl with {"text", "tokens"}; by default passages of the '
        "plays that ship",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--connections", type=int, default=1, metavar="N", help="closed loop: so many wait (1)"
    )
    how.add_argument("--rate", type=float, metavar="R", help="open loop: requests a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured (10)")
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds before that (2)")
    parser.add_argument("--timeout", type=float, default=30.0, help="of a request, seconds (30)")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
