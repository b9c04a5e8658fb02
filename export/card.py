"""The model card that lies in an artefact."""

from collections.abc import Mapping
from typing import Any

from model.card import MIXER_NAMES, training_rows


def model_card(facts: Mapping[str, Any]) -> str:
    """README.md of an artefact, from the facts of its manifest."""
    config, training = facts["config"], facts["training"]
    lines = [
        f"# {facts['name']}",
        "",
        f"A pre-norm masked-language-model encoder with {MIXER_NAMES[facts['mixer']]}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| layers, width | {config['n_layers']}, {config['d_model']} |",
        f"| heads | {config['n_heads']} |",
        f"| longest text | {facts['max_tokens']} tokens |",
        f"| tokens | {facts['tokenizer']['kind']}, {facts['tokenizer']['vocab_size']} ids |",
        *training_rows(training),
        f"| licence of the text | {facts['text_licence']} |",
        *(["| weights on disk | fp16 |"] if facts.get("weights") == "fp16" else []),
        "",
        *([facts["notes"].strip(), ""] if facts.get("notes") else []),
        "Parity with torch, of each output over the larger of 1 and its magnitude:",
        "",
        "| variant | largest difference | alone against batched |",
        "| --- | --- | --- |",
        *(
            f"| {v['name']} | {max(v['parity'].values()):.1e} | {v['alone_against_batched']:.1e} |"
            for v in facts["variants"]
        ),
        "",
        "Made by Maskwright: `maskwright-train`, then `maskwright-export`.",
        "",
    ]
    return "\n".join(lines)
