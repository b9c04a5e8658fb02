"""The model card that lies in an artefact."""

from collections.abc import Mapping
from typing import Any

MIXER_NAMES = {"mhsa": "multi-head self-attention", "mlp_mixer": "MLP-Mixer over positions"}


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
        *_training_rows(training),
        f"| licence of the text | {facts['text_licence']} |",
        "",
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


def _training_rows(training: Mapping[str, Any]) -> list[str]:
    if not training:
        return ["| training | none |"]
    rows = [
        f"| parameters | {training['n_parameters']:,} |",
        f"| corpus | {training['corpus']['name']}, sha256 {training['corpus']['sha256'][:12]}… |",
        f"| steps | {training['step']:,} of {training['recipe']['batch_tokens']:,} tokens |",
    ]
    if score := training.get("held_out"):
        rows.append(
            f"| held-out masked loss | {score['loss']:.4f} nats, top-1 {score['accuracy']:.4f} "
            f"(windows of {score['length']}, 15 % masked, {score['draws']} draws) |"
        )
    return rows
