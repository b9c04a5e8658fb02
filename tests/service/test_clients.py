"""Clients that people own work unchanged: the real packages against a running service."""

from typing import Any

import httpx
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests.service.conftest import Server

TEXTS = ["To be, or not to be", "a"]
LONG = "x" * 40 + "To be, or not to be, that is the question:"


def ours(server: Server, path: str, **body: Any) -> Any:
    answer = httpx.post(server.url + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def hugging_face(server: Server, path: str) -> InferenceClient:
    """Its `model` may be the address of an endpoint."""
    return InferenceClient(model=server.url + path, token="none is wanted here")


def test_hugging_faces_client_fills_a_mask(bundled_server: Server) -> None:
    text = "That is the ques[MASK]ion"
    candidates = hugging_face(bundled_server, "/fill-mask").fill_mask(text, top_k=3)
    assert [
        {key: candidate[key] for key in ("score", "token", "token_str", "sequence")}
        for candidate in candidates
    ] == ours(bundled_server, "/fill-mask", inputs=text, parameters={"top_k": 3})
    assert candidates[0].sequence == "That is the question"


def test_hugging_faces_client_gets_five_candidates_unless_it_says_otherwise(
    bundled_server: Server,
) -> None:
    assert len(hugging_face(bundled_server, "/fill-mask").fill_mask("a[MASK]")) == 5


def test_hugging_faces_client_scores_targets(bundled_server: Server) -> None:
    client = hugging_face(bundled_server, "/fill-mask")
    candidates = client.fill_mask("That is the ques[MASK]ion", targets=["q", "t"])
    assert [candidate.token_str for candidate in candidates] == ["t", "q"]
    assert sum(candidate.score for candidate in candidates) < 1  # over the whole vocabulary


def test_hugging_faces_client_embeds(bundled_server: Server) -> None:
    client = hugging_face(bundled_server, "/embed")
    (unit,) = client.feature_extraction(LONG, normalize=True)
    (raw,) = client.feature_extraction(LONG, normalize=False)
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)
    assert raw / np.linalg.norm(raw) == pytest.approx(unit, abs=1e-6)


def test_hugging_faces_client_cuts_on_the_side_it_names_or_is_refused(
    bundled_server: Server,
) -> None:
    client = hugging_face(bundled_server, "/embed")
    (right,) = client.feature_extraction(LONG, truncate=True, truncation_direction="Right")
    (left,) = client.feature_extraction(LONG, truncate=True, truncation_direction="Left")
    ends = ours(bundled_server, "/embed", inputs=[LONG[:64], LONG[-64:]])
    assert right == pytest.approx(np.array(ends[0]), abs=1e-6)
    assert left == pytest.approx(np.array(ends[1]), abs=1e-6)
    with pytest.raises(HfHubHTTPError, match="this model takes at most 64"):
        client.feature_extraction(LONG, truncate=False)


def test_hugging_faces_client_compares_sentences(bundled_server: Server) -> None:
    client = hugging_face(bundled_server, "/similarity")
    same, other = client.sentence_similarity("O Romeo", other_sentences=["O Romeo", "x"])
    assert same == pytest.approx(1, abs=1e-6)
    assert other < same


def test_hugging_faces_client_shows_the_reason_of_a_refusal(bundled_server: Server) -> None:
    with pytest.raises(HfHubHTTPError, match=r"The text has no \[MASK\]") as caught:
        hugging_face(bundled_server, "/fill-mask").fill_mask("To be")
    assert caught.value.response is not None
    assert caught.value.response.status_code == 400


@pytest.fixture(scope="module")
def client(bundled_server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{bundled_server.url}/v1", api_key="none", max_retries=0)


def test_openais_client_lists_the_models_and_finds_one(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["shakespeare-mhsa", "shakespeare-mlp-mixer"]
    assert client.models.retrieve(names[1]).owned_by == "maskwright"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


def test_openais_client_embeds_as_embed_does_in_either_encoding(
    client: openai.OpenAI, bundled_server: Server
) -> None:
    plain = ours(bundled_server, "/embed", inputs=TEXTS)
    unasked = client.embeddings.create(model="shakespeare-mhsa", input=TEXTS)  # base64
    asked = client.embeddings.create(
        model="shakespeare-mhsa", input=TEXTS, encoding_format="float", user="me"
    )
    for answer in (unasked, asked):
        vectors = [entry.embedding for entry in answer.data]
        assert np.array(vectors) == pytest.approx(np.array(plain), abs=1e-6)
        assert [entry.index for entry in answer.data] == [0, 1]
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == 20
        assert answer.model == "shakespeare-mhsa"


def test_openais_client_picks_a_model_and_dimensions(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="shakespeare-mlp-mixer", input="To be", dimensions=4)
    assert np.linalg.norm(answer.data[0].embedding) == pytest.approx(1, abs=1e-6)
    assert (answer.model, len(answer.data[0].embedding)) == ("shakespeare-mlp-mixer", 4)


def test_openais_client_sends_token_ids(client: openai.OpenAI, bundled_server: Server) -> None:
    tokens = ours(bundled_server, "/tokenize", inputs=TEXTS)
    ids = [[token["id"] for token in of_text] for of_text in tokens]
    by_id = client.embeddings.create(model="shakespeare-mhsa", input=ids)
    by_text = client.embeddings.create(model="shakespeare-mhsa", input=TEXTS)
    for one, other in zip(by_id.data, by_text.data, strict=True):
        assert np.array(one.embedding) == pytest.approx(np.array(other.embedding), abs=1e-6)
    (alone,) = client.embeddings.create(model="shakespeare-mhsa", input=ids[0]).data
    assert np.array(alone.embedding) == pytest.approx(np.array(by_text.data[0].embedding), abs=1e-6)


@pytest.mark.parametrize(
    ("body", "error", "code", "param"),
    [
        ({"model": "gpt", "input": "a"}, openai.NotFoundError, "unknown_model", None),
        ({"input": ["a", ""]}, openai.BadRequestError, "empty_text", "input[1]"),
        ({"input": "a", "dimensions": 129}, openai.UnprocessableEntityError, "invalid_field", None),
        ({"input": [[5], [66]]}, openai.UnprocessableEntityError, "invalid_field", "input[1]"),
    ],
)
def test_openais_client_reads_our_refusals_as_its_own(
    client: openai.OpenAI,
    body: dict[str, Any],
    error: type[openai.APIStatusError],
    code: str,
    param: str | None,
) -> None:
    with pytest.raises(error) as caught:
        client.embeddings.create(**{"model": "shakespeare-mhsa"} | body)
    assert (caught.value.type, caught.value.code) == ("invalid_request_error", code)
    assert caught.value.param == param
