"""Embed lines of text on all machines of a Ray cluster: an engine in each actor, Parquet out.

    python deploy/ray/embed.py corpus.txt --out vectors --actors 4

The output has a row for each line that is not empty: text, vector, truncated; in no order. On one
machine use `maskwright-embed`, which goes on after a stop.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would call its makers

import ray
from ray.data import ActorPoolStrategy, Dataset, SaveMode

TEXTS = 4096  # that an actor takes at once: enough to sort by length


class Embed:
    """An actor: a loaded model, and a thread for each of its cores."""

    def __init__(self, model: str, device: str, threads: int) -> None:
        from service.models import load_model

        self._model = load_model(model, device=device, n_threads=threads)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """The rows with their vectors (n, d_model)."""
        from service.bulk import Options, embed_texts

        texts = list(map(str, rows["text"]))
        n_workers = self._model.engine.n_workers
        vectors, _, truncated = embed_texts(self._model, texts, Options(), n_workers=n_workers)
        return {**rows, "vector": vectors, "truncated": truncated}


def embed(texts: Dataset, *, model: str, device: str, actors: int, threads: int) -> Dataset:
    """The rows of `texts`, which have a column `text`, with a vector each."""
    return texts.map_batches(
        Embed,
        fn_constructor_args=(model, device, threads),
        compute=ActorPoolStrategy(size=actors),
        batch_size=TEXTS,
        batch_format="numpy",
        num_cpus=threads,
        num_gpus=1 if device == "cuda" else 0,
    )


def main() -> None:
    """Read, embed and write."""
    parser = argparse.ArgumentParser(description="Embed lines of text on a Ray cluster.")
    parser.add_argument("files", nargs="+", help="text files, which every machine can read")
    parser.add_argument("--out", required=True, help="new folder of Parquet files")
    parser.add_argument("--model", default="english-mhsa", help="bundled, or an artefact")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--actors", type=int, default=1, help="on CUDA one for each GPU")
    parser.add_argument("--threads", type=int, default=1, help="cores of each actor")
    asked = parser.parse_args()
    ray.init(include_dashboard=False)
    texts = ray.data.read_text([str(Path(file).resolve()) for file in asked.files])
    vectors = embed(
        texts, model=asked.model, device=asked.device, actors=asked.actors, threads=asked.threads
    )
    vectors.write_parquet(str(Path(asked.out).resolve()), mode=SaveMode.ERROR)


if __name__ == "__main__":
    main()
