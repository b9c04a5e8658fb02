"""A loaded artefact: its tokenizer and engine, batches of its texts, the proof that it works."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.arrays import unpacked
from export.artefact import Artefact, InvalidArtefact, load_artefact
from export.widening import widened
from model.tokenizer import Tokenizer
from service.cuda import OutOfMemory
from service.engine import Array, Engine, Runs
from service.errors import NoMemory, NonFinite
from service.metrics import ModelFacts
from service.mixing import Mixing
from service.providers import NoVariant, Provider, ProviderUnavailable, candidates
from service.scheduler import LENGTH_STEP, Item

logger = logging.getLogger(__name__)

Answer = dict[str, NDArray[Any]] | NonFinite | NoMemory  # of one text

BUNDLED = Path(__file__).with_name("bundled")

# /attention copies L·H·T² floats a text; this many bytes take about as long as one token's pass.
BYTES_PER_COST = 16384


@dataclass(frozen=True, slots=True)
class Work:
    """One text for one graph.

    Attributes:
        ids: Token ids, prefix and suffix included.
        mask_columns: Where its masks are.
        outputs: The graph's outputs that are wanted.
        token_ids: Of `mask_logprobs`, the tokens that are wanted; all where empty.
        mixing: What is wanted of the mixing weights.
        reference: Another answer's `last_hidden` of the same text; asks for `shift`, the distance
            of this one from it at each token, relative to its length there.
    """

    ids: Sequence[int]
    outputs: frozenset[str]
    mask_columns: tuple[int, ...] = ()
    token_ids: Sequence[int] = ()
    mixing: Mixing | None = None
    reference: NDArray[Any] | None = None


class Model:
    """An artefact that answers.

    Args:
        name: What requests and metrics call it; the artefact's own name by default.
        n_threads: Cores to use on a CPU; 0 takes all.

    Raises:
        service.providers.ProviderUnavailable: The provider does not work here.
        export.artefact.InvalidArtefact: The artefact does not fit its provider or itself.
    """

    def __init__(
        self, artefact: Artefact, provider: Provider, *, name: str | None = None, n_threads: int = 0
    ) -> None:
        self.artefact = artefact
        self.name = name or artefact.name
        self.tokenizer = Tokenizer.from_json(artefact.tokenizer_json)
        self.engine = Engine(artefact, provider, n_threads=n_threads)
        self._lock, self._proven = threading.Lock(), False  # of attention, when it is first asked
        config = artefact.manifest["config"]
        self.max_tokens: int = artefact.manifest["max_tokens"]
        self.d_model: int = config["d_model"]
        self.n_layers: int = config["n_layers"]
        self.n_heads: int = config["n_heads"]
        self.poolings: tuple[str, ...] = tuple(artefact.manifest["poolings"])
        self.prompts: dict[str, str] = _prompts(artefact)
        self.kind: str = artefact.manifest["kind"]
        if self.max_tokens <= self.tokenizer.n_wrap:
            raise InvalidArtefact(f"{artefact.name}: max_tokens is {self.max_tokens}")
        if self.tokenizer.vocab_size != config["vocab_size"]:
            raise InvalidArtefact(
                f"{artefact.name}: the tokenizer has {self.tokenizer.vocab_size} ids, "
                f"the graphs {config['vocab_size']}"
            )
        # One mask's vocabulary row against one token's pass through the layers.
        d_model, n_layers = self.d_model, self.n_layers
        self._mask_cost = self.tokenizer.vocab_size * d_model / (12 * n_layers * d_model**2)
        self._attention_cost = n_layers * self.n_heads * 4 / BYTES_PER_COST

    def facts(self, requested: str) -> ModelFacts:
        """What the metrics say of it; `requested` is the device that was asked for, or auto."""
        active = self.engine.provider.name
        return ModelFacts(
            name=self.name,
            mixer=self.artefact.manifest["mixer"],
            sha256=self.artefact.sha256,
            precision=self.engine.variant("encode").precision,
            provider=active,
            provider_requested=active if requested == "auto" else requested,
            runtime_version=ort.__version__,
        )

    def item(self, graph: str, work: Work) -> Item:
        """Work with its cost, for the scheduler."""
        return Item(
            runner=self,
            graph=graph,
            payload=work,
            n_tokens=len(work.ids),
            row_tokens=self._row_tokens(len(work.ids)),
            fixed_cost=len(work.mask_columns) * self._mask_cost,
            quadratic_cost=self._attention_cost if graph == "attention" else 0.0,
        )

    def run(self, graph: str, payloads: Sequence[Work]) -> Sequence[Answer]:
        """The wanted outputs of each text, cropped to it."""
        try:
            return self._run(graph, payloads)
        except OutOfMemory:
            if len(payloads) == 1:
                return [NoMemory()]
        half = len(payloads) // 2
        return [*self.run(graph, payloads[:half]), *self.run(graph, payloads[half:])]

    def _run(self, graph: str, payloads: Sequence[Work]) -> list[Answer]:
        if graph == "attention":
            self._prove_attention()
        inputs = self.padded(payloads)
        if graph == "attention":
            del inputs["mask_positions"]
        outputs = sorted(frozenset().union(*(work.outputs for work in payloads)))
        arrays = dict(zip(outputs, self.engine.run(graph, inputs, outputs), strict=True))
        # All at once, and text by text only to find the guilty.
        finite = all(np.isfinite(array).all() for array in arrays.values())
        answers: list[Answer] = []
        first_mask = 0
        for row, work in enumerate(payloads):
            masks = slice(first_mask, first_mask + len(work.mask_columns))
            first_mask = masks.stop
            answer = _crop(arrays, work, row=row, masks=masks)
            answers.append(answer if finite else _checked(answer))
        return answers

    def verify(self) -> None:
        """Run the artefact's golden inputs through every graph that is open.

        Raises:
            InvalidArtefact: An answer is further off than its variant allows.
        """
        for graph in self.engine.opened:
            self._verify(graph, self.engine.sessions(graph))

    def verify_each(self) -> None:
        """The same through every session of `encode`, before any is asked by others.

        Raises:
            InvalidArtefact: An answer is further off than its variant allows.
        """
        for session in self.engine.sessions("encode").each:
            self._verify("encode", session)

    def _prove_attention(self) -> None:
        """Check the graph that is opened by its first request, before it answers."""
        if not self._proven:
            with self._lock:
                if not self._proven:
                    self._verify("attention", self.engine.sessions("attention"))
                    self._proven = True

    def _verify(self, graph: str, session: Runs) -> None:
        golden = self.artefact.manifest["golden"]
        inputs = {name: unpacked(array) for name, array in golden["inputs"].items()}
        variant, expected = self.engine.variant(graph), golden[graph]
        if graph == "attention":
            inputs.pop("mask_positions")
        names = list(expected)
        for name, found in zip(names, session.run(inputs, names), strict=True):
            reference = unpacked(expected[name])
            scale = max(1.0, float(np.abs(reference).max()))
            worst = float(np.abs(found - reference).max()) / scale
            if not worst <= variant.tolerance:  # NaN fails as well
                raise InvalidArtefact(
                    f"{self.name}: {name} of {variant.name} is {worst:.1e} off its golden "
                    f"answer; at most {variant.tolerance:.0e}"
                )

    def warm_up(self) -> None:
        """Run a row of each length once on each session, longest first: no client pays for it."""
        wanted = frozenset({f"pooled_{self.poolings[0]}", "top_logprobs", "top_ids"})
        provider = self.engine.provider
        buckets = [n for n in provider.length_buckets if n < self.max_tokens]
        shorter = buckets or range(LENGTH_STEP, self.max_tokens, LENGTH_STEP)
        for length in [self.max_tokens, *reversed(shorter)]:
            work = Work([self.tokenizer.mask_id] * length, wanted, (0,))
            if buckets:  # a GPU's memory reaches its size here, before a client waits for it
                self.run("encode", [work] * max(1, int(provider.max_batch_cost) // length))
                continue
            for session in self.engine.sessions("encode").each:
                session.run(self.padded([work]), sorted(wanted))

    def padded(self, payloads: Sequence[Work]) -> dict[str, Array]:
        """One batch as the graphs' inputs, rounded up as the provider wants it."""
        lengths = np.array([len(work.ids) for work in payloads], np.int64)
        provider = self.engine.provider
        n_tokens = self._row_tokens(int(lengths.max()))
        ids = np.full((len(payloads), n_tokens), self.tokenizer.pad_id, np.int64)
        masks: list[tuple[int, int]] = []
        for row, work in enumerate(payloads):
            ids[row, : len(work.ids)] = work.ids
            masks += [(row, column) for column in work.mask_columns]
        n_masks = -(-len(masks) // provider.mask_step) * provider.mask_step
        positions = np.zeros((n_masks, 2), np.int64)
        if masks:
            positions[: len(masks)] = masks
        return {"input_ids": ids, "lengths": lengths, "mask_positions": positions}

    def _row_tokens(self, longest: int) -> int:
        """How long the rows of a batch are whose longest text has so many tokens."""
        return min(_rounded(longest, self.engine.provider), self.max_tokens)


def load_model(
    source: str,
    *,
    device: str,
    precision: str = "auto",
    name: str | None = None,
    n_threads: int = 0,
    gpu_memory_mib: int = 0,
) -> Model:
    """Load, check and warm up the artefact in a directory, or a bundled one by its name.

    Args:
        name: What it is to be called; its own name by default.
        n_threads: Cores to use on a CPU; 0 takes all.
        gpu_memory_mib: Most that a session takes of a GPU's memory; 0 for any.

    Raises:
        InvalidArtefact: There is none, or it is damaged or wrong.
        ProviderUnavailable: `device` cannot be had.
    """
    artefact = widened(_load(source))
    providers = candidates(device, precision, gpu_memory_mib=gpu_memory_mib)
    for provider in providers:
        try:
            model = Model(artefact, provider, name=name, n_threads=n_threads)
            model.verify_each()
            model.warm_up()
        except (ProviderUnavailable, NoVariant) as unfit:
            if provider is providers[-1]:
                raise
            logger.warning("%s; trying the next", unfit)
        except InvalidArtefact:
            raise
        except Exception as cause:  # hashes can be right and graphs or facts wrong
            reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
            raise InvalidArtefact(f"{artefact.name} cannot be served: {reason}") from cause
        else:
            return model
    raise AssertionError("there is always a provider to try")


def bundled_names() -> list[str]:
    """Names of the artefacts that ship."""
    return sorted(path.name for path in BUNDLED.iterdir() if path.is_dir())


def _prompts(artefact: Artefact) -> dict[str, str]:
    """Texts the model was trained to see before others, by name; most have none."""
    prompts = artefact.manifest.get("prompts", {})
    if not isinstance(prompts, dict) or not all(isinstance(v, str) for v in prompts.values()):
        raise InvalidArtefact(f"{artefact.name}: 'prompts' is no object of strings")
    return prompts


def _load(source: str) -> Artefact:
    if source in bundled_names():
        return load_artefact(BUNDLED / source, hard_links=True)
    if not Path(source).is_dir():
        raise InvalidArtefact(
            f"model={source!r} is neither a directory nor bundled; bundled are: "
            f"{', '.join(bundled_names()) or 'none'}"
        )
    return load_artefact(Path(source))


def _rounded(length: int, provider: Provider) -> int:
    """The length of a batch whose longest text has `length` tokens."""
    for bucket in provider.length_buckets:
        if length <= bucket:
            return bucket
    return -(-length // provider.length_step) * provider.length_step


def _crop(
    arrays: Mapping[str, Array], work: Work, *, row: int, masks: slice
) -> dict[str, NDArray[Any]]:
    """A text's part of a batch's outputs."""
    n_tokens = len(work.ids)
    answer: dict[str, NDArray[Any]] = {}
    for name in work.outputs:
        array = arrays[name]
        if name == "mask_logprobs" and work.token_ids:
            answer[name] = array[masks][:, work.token_ids]
        elif name in PER_MASK:
            answer[name] = array[masks]
        elif name == "last_hidden" and work.reference is not None:
            moved = np.linalg.norm(array[row, :n_tokens] - work.reference, axis=1)
            answer["shift"] = moved / np.linalg.norm(work.reference, axis=1)
        elif name == "last_hidden":
            answer[name] = array[row, :n_tokens]
        elif name == "mixing_weights" and work.mixing is not None:
            answer |= work.mixing.of(array[row, :, :, :n_tokens, :n_tokens])
        else:
            answer[name] = array[row]
    return answer


def _checked(answer: dict[str, NDArray[Any]]) -> Answer:
    """The answer, or the failure of this text alone if it is not finite."""
    for array in answer.values():
        if not np.isfinite(array).all():
            return NonFinite()
    return answer


PER_MASK = frozenset({"top_logprobs", "top_ids", "mask_logprobs"})
