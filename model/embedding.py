"""The second stage of training: sentence vectors, beside the masked loss that goes on."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from model.distil import (
    contrast,
    imitation,
    likeness,
    nearest,
    onto_leading,
    rows_of,
    sentence_vectors,
)
from model.encoder import Encoder
from model.pairs import Pairs
from model.tokenizer import Tokenizer

# What differs from the recipe of the first stage. Rows of every length come once: no graphs.
SECOND_STAGE: dict[str, Any] = {
    "steps": 1000,
    "seconds": None,
    "batch_tokens": 2048,
    "accumulate": 1,
    "optimizer": "muon",
    "lr": 3e-3,
    "muon_lr": 0.01,
    "schedule": "linear",
    "warmup_steps": 20,
    "compile": "off",
    "eval_every": 200,
    "checkpoint_every": 100,
    "log_every": 10,
}


@dataclass(frozen=True, kw_only=True)
class EmbedRecipe:
    """How sentence vectors are trained.

    Args:
        n_sentences: Sentences of the text that a teacher is asked about, at most.
        batch_sentences: Sentences of a step: half are drawn, and each comes with the one that the
            teacher finds likest; of pairs, half as many pairs.
        weight: Of the sentence loss beside the masked one.
    """

    n_sentences: int = 100_000
    batch_sentences: int = 128
    weight: float = 4.0

    def __post_init__(self) -> None:
        for name in ("n_sentences", "batch_sentences"):
            if getattr(self, name) < 4:
                raise ValueError(f"{name}={getattr(self, name)}; at least 4")
        if not self.weight > 0:
            raise ValueError(f"weight={self.weight}; above 0")


@dataclass(frozen=True)
class Lesson:
    """Sentences and what a teacher makes of them.

    Attributes:
        vectors: The teacher's [N,D].
        facts: What a report says of teacher and sentences.
    """

    sentences: list[str]
    vectors: NDArray[np.floating]
    facts: dict[str, Any]


class SentenceLoss:
    """The loss of an encoder's vectors on a batch that is a function of the seed and the step.

    Args:
        first_stage: What a report says of the run that this one goes on from.

    Raises:
        ValueError: There is neither a lesson nor pairs.
    """

    def __init__(
        self,
        recipe: EmbedRecipe,
        *,
        encoder: Encoder,
        tokenizer: Tokenizer,
        seed: int,
        lesson: Lesson | None = None,
        pairs: Pairs | None = None,
        first_stage: Mapping[str, Any] | None = None,
    ) -> None:
        if lesson is None and pairs is None:
            raise ValueError("the stage embed learns from --teacher, from --pairs, or from both")
        self._recipe, self._seed = recipe, seed
        self._lesson, self._pairs = lesson, pairs
        self._first_stage = dict(first_stage or {})
        max_tokens, d_model = encoder.config.max_tokens, encoder.config.d_model
        if lesson is not None:
            self._rows = rows_of(lesson.sentences, tokenizer, max_tokens=max_tokens)
            self._wanted = onto_leading(lesson.vectors, d_model)
            self._nearest = nearest(lesson.vectors)
        if pairs is not None:
            self._first = rows_of(pairs.first, tokenizer, max_tokens=max_tokens)
            self._second = rows_of(pairs.second, tokenizer, max_tokens=max_tokens)

    def summary(self) -> dict[str, Any]:
        """What decides the loss: for reports, and for a run that is taken up again."""
        found = dataclasses.asdict(self._recipe) | {"first_stage": self._first_stage}
        if self._lesson is not None:
            found |= self._lesson.facts
        if self._pairs is not None:
            found["pairs"] = {
                "name": self._pairs.name,
                "sha256": self._pairs.sha256,
                "n": len(self._pairs),
                "scored": self._pairs.scores is not None,
            }
        return found

    def gradients(self, encoder: Encoder, step: int) -> float:
        """Add the gradients of the step's batch, weighted; the loss before its weight."""
        random = np.random.default_rng((self._seed, step, 1))
        loss = torch.zeros((), device=encoder.head_bias.device)
        if self._lesson is not None:
            loss = loss + self._of_lesson(encoder, random)
        if self._pairs is not None:
            loss = loss + self._of_pairs(encoder, random)
        (loss * self._recipe.weight).backward()
        return loss.item()

    def _of_lesson(self, encoder: Encoder, random: np.random.Generator) -> Tensor:
        chosen = _chosen(random, len(self._rows), self._recipe.batch_sentences // 2)
        both = np.concatenate([chosen, self._nearest[chosen]])
        found = sentence_vectors(encoder, [self._rows[i] for i in both])
        wanted = torch.from_numpy(self._wanted[both].astype(np.float32)).to(found.device)
        (first, second), (theirs, others) = (x.split(len(chosen)) for x in (found, wanted))
        alike = functional.cosine_similarity(theirs, others, dim=1)
        return imitation(found, wanted) + likeness(first, second, alike)

    def _of_pairs(self, encoder: Encoder, random: np.random.Generator) -> Tensor:
        assert self._pairs is not None
        chosen = _chosen(random, len(self._first), self._recipe.batch_sentences // 2)
        rows = [self._first[i] for i in chosen] + [self._second[i] for i in chosen]
        first, second = sentence_vectors(encoder, rows).split(len(chosen))
        if self._pairs.scores is None:
            return contrast(first, second)
        scores = torch.from_numpy(self._pairs.scores[chosen]).to(first.device)
        return likeness(first, second, scores)


def _chosen(random: np.random.Generator, n: int, size: int) -> NDArray[np.int64]:
    return random.choice(n, size=min(n, size), replace=False)
