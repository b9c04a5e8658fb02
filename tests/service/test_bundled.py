"""The models that ship: small, proven in each precision, and worth a first request."""

from pathlib import Path

import numpy as np
import pytest

from export.artefact import Artefact, load_artefact
from service.models import BUNDLED, Model, Work, bundled_names, load_model
from service.settings import Settings

MIB = 2**20
ENGLISH = [name for name in bundled_names() if name.startswith("english-")]


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_each_takes_at_most_30_mib_and_all_together_64() -> None:
    sizes = {name: size(BUNDLED / name) for name in bundled_names()}
    assert max(sizes.values()) <= 30 * MIB
    assert sum(sizes.values()) <= 64 * MIB


def test_there_is_an_english_one_of_each_mixer_and_the_first_is_the_default() -> None:
    mixers = [load_artefact(BUNDLED / name).manifest["mixer"] for name in ENGLISH]
    assert mixers == ["mhsa", "mlp_mixer"]
    assert Settings().model == ENGLISH[0]


@pytest.fixture(params=ENGLISH)
def artefact(request: pytest.FixtureRequest) -> Artefact:
    return load_artefact(BUNDLED / request.param)


def test_each_precision_agrees_with_fp32_and_the_vocabulary_is_there_once(
    artefact: Artefact,
) -> None:
    agreement = artefact.manifest["agreement"]
    assert set(agreement) == {"int8", "fp16"}
    for found in agreement.values():
        assert found["cosine"]["pooled_mean"] >= 0.999
        assert found["top1"] >= 0.97
    config = artefact.manifest["config"]
    embedding = 2 * config["vocab_size"] * config["d_model"]  # bytes, in half precision
    added = sum(len(data) for name, data in artefact.files.items() if name.startswith("weights."))
    assert added < 2 * embedding + 2**23


def test_the_card_names_licences_budget_scores_and_failures(artefact: Artefact) -> None:
    card = artefact.files["README.md"].decode()
    for part in ("CC BY-SA 4.0", "WordNet 3.0", "Apache 2.0", "CPU-seconds", "STS-B", "failures"):
        assert part in card


@pytest.fixture(scope="module", params=ENGLISH)
def english(request: pytest.FixtureRequest) -> Model:
    return load_model(request.param, device="cpu")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The capital of France is [MASK].", "paris"),
        ("[MASK] is the capital of Japan.", "tokyo"),
        ("Berlin is a city in [MASK].", "germany"),
    ],
)
def test_a_newcomers_first_fact_is_among_the_five_likeliest(
    english: Model, text: str, word: str
) -> None:
    tokenizer = english.tokenizer
    ids = tokenizer.wrap(tokenizer.encode(text).ids)
    work = Work(ids, frozenset({"top_ids"}), (ids.index(tokenizer.mask_id),))
    (answer,) = english.run("encode", [work])
    assert isinstance(answer, dict)
    assert tokenizer.encode(word).ids[0] in answer["top_ids"][0, :5]


def test_vectors_of_like_sentences_are_closer_than_those_that_share_more_words(
    english: Model,
) -> None:
    texts = ("A man is playing a guitar.", "Someone plays music.", "A man is eating a potato.")
    rows = [english.tokenizer.wrap(english.tokenizer.encode(text).ids) for text in texts]
    answers = english.run("encode", [Work(row, frozenset({"pooled_mean"})) for row in rows])
    vectors = [answer["pooled_mean"] for answer in answers if isinstance(answer, dict)]
    a, b, c = (vector / np.linalg.norm(vector) for vector in vectors)
    assert a @ b > a @ c
