"""What docs/api.md says of these clients runs."""

import re
from pathlib import Path

import pytest

DOCUMENT = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
HERE = ("langchain_openai", "llama_index", "tritonclient", "bertviz")


@pytest.mark.parametrize("package", HERE)
def test_what_is_said_of_a_client_runs(url: str, package: str) -> None:
    (block,) = [text for text in BLOCKS if re.search(rf"(from|import) {package}\b", text)]
    block = block.replace("localhost:8000", url.removeprefix("http://"))
    exec(block, {})  # the document's own lines


def test_every_client_in_the_document_is_tried() -> None:
    tried = "|".join((*HERE, "huggingface_hub", "openai"))
    assert all(re.search(rf"(from|import) ({tried})\b", block) for block in BLOCKS)
