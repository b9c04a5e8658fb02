"""Bulk embedding at size: near the speed of the bare runtime, and the same after a kill."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from deploy.checks.parts import wait_until
from service.models import Work, load_model

MODEL, N_LINES, SAMPLE = "shakespeare-mhsa", 200_000, 20_000
WORDS = (
    "to",
    "be",
    "or",
    "not",
    "that",
    "is",
    "the",
    "question",
    "whether",
    "nobler",
    "in",
    "mind",
)


def lines() -> list[str]:
    chosen = random.Random(1)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 12))) for _ in range(N_LINES)]


def ceiling(texts: list[str]) -> float:
    """Real tokens a second of the bare runtime: ids ready, sorted, batched, one thread a core."""
    model = load_model(MODEL, device="cpu")
    ids = sorted(
        (found[: model.max_tokens] for found in model.tokenizer.encode_ids(texts)), key=len
    )
    batches, at = [], 0
    while at < len(ids):
        # As long as the longest that fits: sorted upwards, so try the largest count first.
        size = max(1, int(model.engine.provider.max_batch_cost // (-(-len(ids[at]) // 8) * 8)))
        batches.append(model.padded([Work(i, frozenset()) for i in ids[at : at + size]]))
        at += size
    cores = len(os.sched_getaffinity(0))

    def run(inputs: dict[str, np.ndarray]) -> None:
        model.engine.run("encode", inputs, ["pooled_mean"])

    begun = time.monotonic()
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(run, batches))
    return sum(map(len, ids)) / (time.monotonic() - begun)


@pytest.mark.slow
def test_a_corpus_is_embedded_near_the_runtimes_own_speed_and_the_same_after_a_kill(
    tmp_path: Path,
) -> None:
    texts = lines()
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(texts) + "\n")

    def command(out: str) -> list[str]:
        flags = ["--model", MODEL, "--device", "cpu", "--out", str(tmp_path / out)]
        return [sys.executable, "-m", "service.bulk_cli", str(corpus), *flags]

    before = ceiling(texts[:SAMPLE])
    ended = subprocess.run(command("whole"), check=True, capture_output=True, text=True)
    after = ceiling(texts[:SAMPLE])
    speed = float(ended.stderr.split(", ")[-1].split()[0].replace(",", ""))
    share = speed / ((before + after) / 2)
    print(f"\n{speed:,.0f} tokens/s; bare runtime {before:,.0f} and {after:,.0f}: {share:.2f}")

    killed = subprocess.Popen(command("killed"), stderr=subprocess.DEVNULL)
    middle = tmp_path / "killed" / "part-000005.parquet"
    wait_until(middle.exists, seconds=1200, what="half of the parts")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    subprocess.run(command("killed"), check=True, capture_output=True)
    parts = sorted((tmp_path / "whole").glob("part-*"))
    assert len(parts) == -(-N_LINES // 16384)
    for part in parts:
        assert (tmp_path / "killed" / part.name).read_bytes() == part.read_bytes()
    rows = np.concatenate([pq.read_table(part)["row"].to_numpy() for part in parts])
    assert (rows == np.arange(N_LINES)).all()
    assert share >= 0.85
