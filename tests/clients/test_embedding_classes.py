"""Embedding classes of LangChain and LlamaIndex."""

import httpx
import pytest
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

TEXTS = ["To be, or not to be", "O Romeo"]


def embedded(url: str, *texts: str, model: str = "shakespeare-mhsa") -> list[list[float]]:
    body = {"inputs": texts, "model": model}
    vectors: list[list[float]] = httpx.post(f"{url}/embed", json=body).json()
    return vectors


def assert_close(one: list[float], other: list[float]) -> None:
    assert one == pytest.approx(other, abs=1e-6)


def test_langchain_embeds_documents_and_a_query(url: str) -> None:
    # Without its check it sends texts; with it, ids of a tokenizer of OpenAI's.
    embeddings = OpenAIEmbeddings(
        base_url=f"{url}/v1",
        api_key="none",
        model="shakespeare-mlp-mixer",
        check_embedding_ctx_length=False,
    )
    wanted = embedded(url, *TEXTS, model="shakespeare-mlp-mixer")
    for vector, other in zip(embeddings.embed_documents(TEXTS), wanted, strict=True):
        assert_close(vector, other)
    assert_close(embeddings.embed_query(TEXTS[1]), wanted[1])


def test_llama_index_embeds_texts_and_a_query(url: str) -> None:
    model = TextEmbeddingsInference(model_name="shakespeare-mhsa", base_url=url)
    wanted = embedded(url, *TEXTS)
    for vector, other in zip(model.get_text_embedding_batch(TEXTS), wanted, strict=True):
        assert_close(vector, other)
    assert_close(model.get_query_embedding(TEXTS[1]), wanted[1])
