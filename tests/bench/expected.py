"""What the answers must be: each text alone through the graph of its precision."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

from export.artefact import load_artefact
from model.tokenizer import Tokenizer
from service.workload import Sample
from tests.bench.loop import session_of

TOLERANCE = 1e-4  # of a vector's features, and of probabilities


class Expected:
    """Checks answers to texts of one route, where a text is sent as a list of one or more."""

    def __init__(self, artefact: Path, route: str, precision: str = "fp32") -> None:
        self._tokenizer = Tokenizer.from_json(load_artefact(artefact).tokenizer_json)
        self._session = session_of(artefact, precision, n_threads=1)
        self._route = route

    def off_by(self, samples: Sequence[Sample], body: bytes) -> float:
        """Largest distance of an answer's numbers from the right ones, infinite if none came."""
        answers = orjson.loads(body)
        if len(answers) != len(samples):
            return float("inf")
        return max(
            self._one(sample.text, found) for sample, found in zip(samples, answers, strict=True)
        )

    def _one(self, text: str, found: object) -> float:
        tokenizer = self._tokenizer
        ids = np.array([tokenizer.wrap(tokenizer.encode(text).ids)], np.int64)
        masks = np.argwhere(ids == tokenizer.mask_id)
        inputs = {"input_ids": ids, "lengths": np.array([ids.shape[1]]), "mask_positions": masks}
        if self._route == "/embed":
            (pooled,) = self._session.run(["pooled_mean"], inputs)
            vector = pooled[0] / np.linalg.norm(pooled[0])
            return float(np.abs(np.array(found, np.float32) - vector).max())
        (logprobs,) = self._session.run(["mask_logprobs"], inputs)
        assert isinstance(found, list)
        return max(abs(each["score"] - float(np.exp(logprobs[0, each["token"]]))) for each in found)
