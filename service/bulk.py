"""A corpus to vectors on one machine: streamed, in batches of like length, resumable.

The input is cut into chunks of equal number of texts. A chunk's texts are sorted by length, so that
its batches hold next to no padding; its vectors are written as one part, in the order of the input.
A part that is there is not computed again, so a run that was stopped goes on where it was.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.bulk_files import Text, part_path, read_texts, rows_in, write_part
from service.models import Model, Work
from service.scheduler import LENGTH_STEP

JOB = "job.json"
CHUNK = 16384  # texts in a part: enough to sort, little to lose


class OtherJob(ValueError):
    """The output belongs to a run with another model, other files or other options."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is wanted of each vector.

    Attributes:
        pooling: How tokens become one vector.
        normalize: Whether to scale vectors to length 1.
        column: Field or column that holds the text, of files that have such.
        chunk: Texts in a part.
    """

    pooling: str = "mean"
    normalize: bool = True
    column: str = "text"
    chunk: int = CHUNK


@dataclass(slots=True)
class Progress:
    """What was done so far; `kept` of the texts were there from an earlier run."""

    texts: int = 0
    kept: int = 0
    tokens: int = 0
    empty: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    texts: list[Text]
    ids: list[list[int]]
    truncated: NDArray[np.bool_]
    batches: list[tuple[NDArray[np.intp], "Future[NDArray[np.float32]]"]]


def embed_corpus(
    model: Model,
    files: Sequence[Path],
    out: Path,
    options: Options,
    *,
    n_workers: int,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Embed every text of the files into parts under `out`.

    Raises:
        OtherJob: `out` holds something else.
        service.bulk_files.BadInput: A file cannot be read.
    """
    _claim(out, _job(model, files, options))
    progress = Progress()
    with ThreadPoolExecutor(n_workers) as pool:
        running: _Chunk | None = None
        # One chunk is read, tokenized and sorted while the workers compute the one before.
        for number, texts in enumerate(_chunks(read_texts(files, column=options.column), options)):
            path = part_path(out, number)
            if path.exists() and rows_in(path) == len(texts):
                progress.texts += len(texts)
                progress.kept += len(texts)
                continue
            started = _start(model, number, texts, options, pool)
            if running:
                _finish(model, running, out, options, progress)
                tell(progress)
            running = started
        if running:
            _finish(model, running, out, options, progress)
        tell(progress)
    return progress


def embed_texts(
    model: Model, texts: Sequence[str], options: Options, *, n_workers: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """The vectors (n, d_model) of texts at hand, and which were empty (n,) and cut (n,).

    The vector of an empty text is zeros.
    """
    placed = [Text("", row, text) for row, text in enumerate(texts)]
    with ThreadPoolExecutor(n_workers) as pool:
        chunk = _start(model, 0, placed, options, pool)
        vectors, empty = _gathered(model, chunk)
    return vectors, empty, chunk.truncated


def _chunks(texts: Iterator[Text], options: Options) -> Iterator[list[Text]]:
    while chunk := list(islice(texts, options.chunk)):
        yield chunk


def _start(
    model: Model, number: int, texts: list[Text], options: Options, pool: ThreadPoolExecutor
) -> _Chunk:
    """Tokenize a chunk and hand its batches to the workers, the longest first."""
    tokenizer = model.tokenizer
    room = model.max_tokens - tokenizer.n_wrap
    ids = tokenizer.encode_ids([text.text for text in texts])
    lengths = np.array([min(len(found), room) for found in ids], np.int64)
    truncated = np.array([len(found) > room for found in ids], np.bool_)
    ids = [tokenizer.wrap(found[:room]) for found in ids]
    order = np.argsort(-lengths, kind="stable")
    order = order[: int(np.count_nonzero(lengths))]  # the empty ones are last
    budget = model.engine.provider.max_batch_cost
    batches, start = [], 0
    while start < len(order):
        longest = len(ids[order[start]])
        padded = -(-longest // LENGTH_STEP) * LENGTH_STEP
        members = order[start : start + max(1, int(budget // padded))]
        works = [Work(ids[member], _outputs(options)) for member in members]
        batches.append((members, pool.submit(_vectors, model, works, options)))
        start += len(members)
    return _Chunk(number, texts, ids, truncated, batches)


def _outputs(options: Options) -> frozenset[str]:
    return frozenset({f"pooled_{options.pooling}"})


def _vectors(model: Model, works: Sequence[Work], options: Options) -> NDArray[np.float32]:
    """The vectors of one batch."""
    inputs = model.padded(works)
    (vectors,) = model.engine.run("encode", inputs, sorted(_outputs(options)))
    found: NDArray[np.float32] = vectors.astype(np.float32, copy=False)
    if not np.isfinite(found).all():
        raise FloatingPointError("the model has no finite answer to a text")
    if options.normalize:
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
    return found


def _gathered(model: Model, chunk: _Chunk) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """A chunk's vectors in the order of its texts, and which texts have none."""
    vectors = np.zeros((len(chunk.texts), model.d_model), np.float32)
    empty = np.ones(len(chunk.texts), np.bool_)
    for members, batch in chunk.batches:
        vectors[members] = batch.result()
        empty[members] = False
    return vectors, empty


def _finish(model: Model, chunk: _Chunk, out: Path, options: Options, progress: Progress) -> None:
    """Write a chunk's part."""
    vectors, empty = _gathered(model, chunk)
    progress.tokens += sum(len(chunk.ids[member]) for member in np.flatnonzero(~empty))
    path = part_path(out, chunk.number)
    write_part(path, chunk.texts, vectors, empty=empty, truncated=chunk.truncated)
    progress.texts += len(chunk.texts)
    progress.empty += int(empty.sum())
    progress.truncated += int(chunk.truncated.sum())


def _job(model: Model, files: Sequence[Path], options: Options) -> dict[str, Any]:
    """What decides the output: if all of it is equal, a part that is there is right."""
    return {
        "model": model.name,
        "model_sha256": model.artefact.sha256,
        "pooling": options.pooling,
        "normalize": options.normalize,
        "column": options.column,
        "chunk": options.chunk,
        "files": [[str(file), _sha256(file)] for file in files],
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _claim(out: Path, job: dict[str, Any]) -> None:
    """Make the output ours, or find that it is.

    Raises:
        OtherJob: It is not.
    """
    out.mkdir(parents=True, exist_ok=True)
    description = out / JOB
    if description.exists():
        before = json.loads(description.read_text())
        changed = [name for name in job if before.get(name) != job[name]]
        if changed:
            raise OtherJob(
                f"{out} holds the output of a run with another {', another '.join(changed)}; "
                "name another --out, or delete it"
            )
    elif any(out.iterdir()):
        raise OtherJob(f"{out} is not empty and holds no {JOB}; name another --out")
    else:
        unfinished = description.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(job, indent=2) + "\n")
        unfinished.replace(description)
