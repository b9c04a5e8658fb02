"""The model card of a run, and the rows of it that an artefact's card repeats."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MIXER_NAMES = {"mhsa": "multi-head self-attention", "mlp_mixer": "MLP-Mixer over positions"}


def run_card(
    summary: Mapping[str, Any], *, name: str, samples: Sequence[tuple[int, str]] = ()
) -> str:
    """README.md of a run's directory, from its summary.

    Args:
        samples: (step, filled-in text), of which the last is shown.
    """
    config = summary["config"]
    lines = [
        f"# {name}",
        "",
        f"A pre-norm masked-language-model encoder with {MIXER_NAMES[config['mixer']]}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| layers, width | {config['n_layers']}, {config['d_model']} |",
        f"| longest row | {config['max_tokens']} tokens |",
        f"| vocabulary | {summary['recipe']['tokenizer']}, {config['vocab_size']} ids |",
        *training_rows(summary),
        f"| licence of the text | {summary['corpus']['licence']} |",
        "",
        "It knows its text and little else: judge it on text like yours before you use it.",
        "",
    ]
    if samples:
        lines += [
            "Held-out text, its masks filled in as `[right]` or `[wrong|what it was]`:",
            "",
            "```",
            samples[-1][1],
            "```",
            "",
        ]
    return "\n".join(lines)


def runs_before(training: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a training says of the runs that it went on from, the last first."""
    run = training.get("embed", {}).get("first_stage")
    while run:
        yield run
        run = run.get("first_stage")


def training_rows(training: Mapping[str, Any]) -> list[str]:
    """What a table says of the training: parameters, text, budget and score."""
    if not training:
        return ["| training | none |"]
    rows = [
        f"| parameters | {training['n_parameters']:,} |",
        f"| corpus | {training['corpus']['name']}, sha256 {training['corpus']['sha256'][:12]}… |",
        f"| steps | {training['step']:,} of {training['recipe']['batch_tokens']:,} tokens |",
    ]
    if words := training.get("source", {}).get("words"):
        rows.append(f"| words | the embedding began as that of {words} |")
    before: Mapping[str, Any] = {}
    if embed := training.get("embed"):
        lessons = [embed[kind]["name"] for kind in ("teacher", "pairs") if kind in embed]
        before = embed["first_stage"]
        steps = sum(run.get("step", 0) for run in runs_before(training))
        rows.append(
            f"| stage | the second, for vectors of sentences, from {' and '.join(lessons)}; "
            f"{steps:,} steps went before |"
        )
    for row, blend in (("began", before.get("blend")), ("taken", training.get("blend"))):
        if blend:
            rows.append(f"| {row} | {blend['share']:.0%} of the way back to {blend['run']} |")
    if cost := training.get("cost"):
        earlier = sum(run.get("cost", {}).get("cpu_seconds", 0) for run in runs_before(training))
        after = f", after {earlier:,.0f} of the runs before" if earlier else ""
        rows.append(f"| cost | {cost['cpu_seconds']:,.0f} CPU-seconds{after} |")
    if score := training.get("held_out"):
        rows.append(
            f"| held-out masked loss | {score['loss']:.4f} nats, top-1 {score['accuracy']:.4f} "
            f"(windows of {score['length']}, 15 % masked, {score['draws']} draws) |"
        )
    return rows
