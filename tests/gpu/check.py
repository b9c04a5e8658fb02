"""What `tests/gpu/run.sh` proves of each artefact; prints a line a check, 1 if one fails."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort

from export.artefact import load_artefact
from model.tokenizer import Tokenizer
from service.errors import NoMemory
from service.models import Model, Work, load_model
from service.providers import PROVIDERS, candidates
from service.workload import passages
from tests.bench.servers import ours, window

SECONDS, CONNECTIONS = 10.0, 128
POOLED = frozenset({"pooled_mean"})
HEAVY = ("MatMul", "Gemm", "FusedMatMul", "Attention")

Check = Callable[[Path], tuple[str, bool]]


def works(model: Model, n: int) -> list[Work]:
    """Texts of mixed lengths."""
    samples = passages(n, seed=0, tokenizer=model.tokenizer, longest=model.max_tokens)
    tokenizer = model.tokenizer
    return [Work(tokenizer.wrap(tokenizer.encode(s.text).ids), POOLED) for s in samples]


def vectors(model: Model, texts: Sequence[Work]) -> Iterator[np.ndarray]:
    """Their vectors, in batches of 64."""
    for start in range(0, len(texts), 64):
        for answer in model.run("encode", texts[start : start + 64]):
            if isinstance(answer, dict):
                yield answer["pooled_mean"]


def runs_on_cuda_in_fp16(path: Path) -> tuple[str, bool]:
    """Strict mode loads, and the session's first provider is CUDA."""
    facts = load_model(str(path), device="cuda").facts("cuda")
    return f"{facts.provider}, {facts.precision}", (facts.provider, facts.precision) == (
        "cuda",
        "fp16",
    )


def places_the_heavy_operators_there(path: Path) -> tuple[str, bool]:
    """No matrix product and no attention is left on the CPU."""
    candidates("cuda")  # loads CUDA's libraries
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    file = next(v.file for v in load_artefact(path).variants if v.precision == "fp16")
    session = ort.InferenceSession(
        path / file, options, ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    left = [
        node.op_type
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name == "CPUExecutionProvider"
        for node in part.get_nodes()
        if node.op_type in HEAVY
    ]
    return f"on the CPU: {', '.join(left) or 'none of them'}", not left


def agrees_with_fp32(path: Path) -> tuple[str, bool]:
    """fp16 on the GPU beside fp32 on the CPU."""
    on_gpu, on_cpu = load_model(str(path), device="cuda"), load_model(str(path), device="cpu")
    texts = works(on_cpu, 256)
    cosine = min(
        float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for a, b in zip(vectors(on_gpu, texts), vectors(on_cpu, texts), strict=True)
    )
    return f"smallest cosine {cosine:.5f}", cosine >= 0.999


def comes_near_the_bare_loop(path: Path) -> tuple[str, bool]:
    """The service at 128 connections beside the engine alone on sorted batches."""
    model = load_model(str(path), device="cuda")
    texts = sorted(works(model, 4096), key=lambda work: len(work.ids))
    size = max(1, int(model.engine.provider.max_batch_cost) // model.max_tokens)
    begun, n_tokens = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < SECONDS:
        for start in range(0, len(texts), size):
            inputs = model.padded(texts[start : start + size])
            model.engine.run("encode", inputs, ["pooled_mean"])
        n_tokens += sum(len(work.ids) for work in texts)
    bare = n_tokens / spent
    del model
    tokenizer = Tokenizer.from_json(load_artefact(path).tokenizer_json)
    longest = load_artefact(path).manifest["max_tokens"]
    samples = passages(2048, seed=1, tokenizer=tokenizer, longest=longest)
    with ours(path, "--device", "cuda") as (url, _):
        load = window(url, "/embed", samples, seconds=SECONDS, warmup=3.0, connections=CONNECTIONS)
    ratio = load.n_tokens / load.seconds / bare
    return f"{ratio:.2f} of {bare:,.0f} tokens/s", ratio >= 0.8 and not load.errors


def keeps_its_memory(path: Path) -> tuple[str, bool]:
    """The device's memory after three sweeps over all lengths and row counts."""
    model = load_model(str(path), device="cuda")
    used = []
    for _ in range(3):
        for length in range(1, model.max_tokens + 1, 3):
            for n_rows in (1, 5, 32):
                model.run("encode", [Work([5] * length, POOLED)] * n_rows)
        used.append(_used_mib())
    return f"{used} MiB", used[-1] <= 1.05 * used[0]


def outlives_its_memory_running_out(path: Path) -> tuple[str, bool]:
    """With an arena of a few MiB a large batch is split, and what fits alone is answered."""
    candidates("cuda")
    provider = PROVIDERS["cuda"]
    artefact = load_artefact(path)
    small = {
        **provider.options,
        "gpu_mem_limit": str(3 * len(artefact.files["weights.safetensors"])),
    }
    model = Model(artefact, dataclasses.replace(provider, options=small))
    answers = model.run("encode", [Work([5] * model.max_tokens, POOLED)] * 2048)
    n_answered = sum(isinstance(answer, dict) for answer in answers)
    told = sum(isinstance(answer, NoMemory) for answer in answers)
    return f"{n_answered} answered, {told} told", n_answered + told == 2048 and n_answered > 0


def _used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


CHECKS: tuple[Check, ...] = (
    runs_on_cuda_in_fp16,
    places_the_heavy_operators_there,
    agrees_with_fp32,
    comes_near_the_bare_loop,
    keeps_its_memory,
    outlives_its_memory_running_out,
)


def main() -> int:
    """Run every check on every artefact that is named."""
    failed = 0
    for path in map(Path, sys.argv[1:]):
        for check in CHECKS:
            try:
                found, holds = check(path)
            except Exception as error:  # the next check may still tell something  # noqa: BLE001
                found, holds = f"{type(error).__name__}: {error}", False
            print(
                f"{'ok  ' if holds else 'FAIL'} {path.name} {check.__name__}: {found}", flush=True
            )
            failed += not holds
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
