"""ONNX Runtime alone on the same texts, no HTTP: what no server on this machine can pass.

Prints one JSON object: tokens a second of each way. `one`: a text a run, one session on every core;
`sorted`: batches cut from all texts in the order of their lengths, a 1-thread session a core;
`window`: the same within 128 texts at a time, as one request of 128 texts could at best be run;
`long`: rows of 128 tokens, none padded.
"""

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export import openvino
from export.artefact import load_artefact
from model.tokenizer import Tokenizer
from service.workload import from_file, masked, passages

BUDGET = 256  # padded tokens in a batch: the best of 128, 256, 512 and 1,024
N_TEXTS = 512
WINDOW = 128
LONG = 128  # tokens

Inputs = dict[str, NDArray[np.int64]]


def session_of(artefact: Path, precision: str, *, n_threads: int) -> ort.InferenceSession:
    """A plain session on the artefact's `encode` in a precision that a CPU runs."""
    form = "decomposed" if precision == "bf16" else "attention-op"
    (file,) = {
        variant.file
        for variant in load_artefact(artefact, hard_links=True).variants
        if (variant.graph, variant.form, variant.precision) == ("encode", form, precision)
    }
    options = ort.SessionOptions()
    options.intra_op_num_threads = n_threads
    if precision == "bf16":  # a thread a session, whatever is asked
        options.add_provider_for_devices(openvino.devices(), openvino.OPTIONS)
        return ort.InferenceSession(artefact / file, options)
    return ort.InferenceSession(artefact / file, options, ["CPUExecutionProvider"])


class Loop:
    """The texts of one route, and sessions on one variant."""

    def __init__(
        self, artefact: Path, *, precision: str, route: str, seed: int, data: Path | None = None
    ) -> None:
        loaded = load_artefact(artefact)
        tokenizer = Tokenizer.from_json(loaded.tokenizer_json)
        samples = (
            from_file(data)[:N_TEXTS] if data else passages(N_TEXTS, seed=seed, tokenizer=tokenizer)
        )
        if route == "/fill-mask":
            samples = masked(samples, seed=seed, tokenizer=tokenizer)
        rows = (tokenizer.wrap(tokenizer.encode(sample.text).ids) for sample in samples)
        self._rows = [row for row in rows if len(row) <= loaded.manifest["max_tokens"]]
        self._mask_id = tokenizer.mask_id if route == "/fill-mask" else -1
        self._outputs = ["top_logprobs", "top_ids"] if route == "/fill-mask" else ["pooled_mean"]
        self._artefact, self._precision = artefact, precision

    def inputs(self, rows: Sequence[Sequence[int]]) -> Inputs:
        """One batch, padded to its longest row."""
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        lengths = np.array([len(row) for row in rows], np.int64)
        positions = np.argwhere(ids == self._mask_id)
        return {"input_ids": ids, "lengths": lengths, "mask_positions": positions}

    def cut(self, rows: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Batches under the budget, in the order of lengths."""
        batch: list[Sequence[int]] = []
        for row in sorted(rows, key=len):
            if batch and (len(batch) + 1) * len(row) > BUDGET:
                yield batch
                batch = []
            batch.append(row)
        yield batch

    def ways(self, cores: int) -> dict[str, Callable[[float], float]]:
        """Each way by name, as a function of seconds that gives tokens a second."""
        rows = self._rows
        text = [token for row in rows for token in row]
        long = [text[start : start + LONG] for start in range(0, len(text) - LONG, LONG)]
        windows = [rows[start : start + WINDOW] for start in range(0, len(rows), WINDOW)]
        plans = {
            "one": (1, cores, [[row] for row in rows]),
            "sorted": (cores, 1, list(self.cut(rows))),
            "window": (cores, 1, [batch for window in windows for batch in self.cut(window)]),
            "long": (cores, 1, list(self.cut(long))),
        }
        return {
            name: lambda seconds, plan=plan: self._measured(*plan, seconds=seconds)  # type: ignore[misc]
            for name, plan in plans.items()
        }

    def _measured(
        self, n_sessions: int, threads: int, batches: list[list[Sequence[int]]], *, seconds: float
    ) -> float:
        """Tokens a second, the median of whole passes over the texts."""
        sessions = [
            session_of(self._artefact, self._precision, n_threads=threads)
            for _ in range(n_sessions)
        ]
        # The dearest first, so that the sessions end together.
        feeds = sorted(map(self.inputs, batches), key=lambda x: -x["input_ids"].size)
        n_tokens = sum(len(row) for batch in batches for row in batch)
        self._run(sessions, feeds)
        passes, begun = [], time.perf_counter()
        while not passes or time.perf_counter() - begun < seconds:
            passes.append(n_tokens / self._run(sessions, feeds))
        return median(passes)

    def _run(self, sessions: Sequence[ort.InferenceSession], feeds: Sequence[Inputs]) -> float:
        """Seconds of one pass."""
        todo = iter(feeds)

        def work(session: ort.InferenceSession) -> None:
            for inputs in todo:
                session.run(self._outputs, inputs)

        threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artefact", type=Path)
    parser.add_argument("--route", default="/embed")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="other texts than the plays")
    parser.add_argument("--ways", nargs="+", default=["one", "sorted", "window"])
    options = parser.parse_args()
    loop = Loop(
        options.artefact,
        precision=options.precision,
        route=options.route,
        seed=options.seed,
        data=options.data,
    )
    ways = loop.ways(len(os.sched_getaffinity(0)))
    print(json.dumps({name: ways[name](options.seconds) for name in options.ways}))


if __name__ == "__main__":
    main()
