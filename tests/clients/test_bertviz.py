"""The answer of /attention in bertviz."""

import json

import bertviz
import httpx
import pytest
import torch


@pytest.mark.parametrize("model", ["shakespeare-mhsa", "shakespeare-mlp-mixer"])
def test_the_line_in_the_documents_shows_the_answer(url: str, model: str) -> None:
    answer = httpx.post(f"{url}/attention", json={"inputs": "To be", "model": model}).json()
    weights, tokens = torch.tensor(answer["weights"]), [t["text"] for t in answer["tokens"]]
    page = bertviz.head_view(list(weights[:, None]), tokens, html_action="return").data
    script = page[page.index("const params = ") + len("const params = ") :]
    (view,) = json.JSONDecoder().raw_decode(script)[0]["attention"]
    assert view["left_text"] == view["right_text"] == ["T", "o", " ", "b", "e"]
    assert torch.equal(torch.tensor(view["attn"]), weights)
