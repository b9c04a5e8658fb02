"""The other side of `make bench-train`: labml's masked-language-model experiment, as it is.

Runs in an environment of its own with labml-nn 0.5.1 and labml 0.4 from PyPI. Model, masking,
optimizer and data layout are labml's; its tracker, which prints and logs, is left out. Prints one
JSON line for each score: step, CPU-seconds of training, held-out loss. With `--bursts` it reads
numbers of steps from its input and answers each with CPU-seconds a step.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch

# labml's helpers name torchvision's classes in signatures of data sets that are not used here.
stub = MagicMock()
for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
    sys.modules[name] = stub

from labml_nn.optimizers.configs import OptimizerConfigs
from labml_nn.transformers import TransformerConfigs
from labml_nn.transformers.configs import FeedForwardConfigs
from labml_nn.transformers.mlm import MLM
from labml_nn.transformers.mlm.experiment import TransformerMLM
from labml_nn.transformers.mlp_mixer import MLPMixer

N_ROWS, N_TOKENS, D_MODEL = 64, 32, 128
SEED, MASK_RATE, DRAWS = 20240, 0.15, 4


def build(mixer: str, n_vocab: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """labml's model and its Noam optimizer, with the settings of its two experiments."""
    transformer = TransformerConfigs()
    transformer.n_src_vocab = transformer.n_tgt_vocab = n_vocab
    transformer.d_model = D_MODEL
    transformer.n_heads, transformer.n_layers = 8, 6
    transformer.ffn.d_ff = 256
    if mixer == "mlp_mixer":
        mix = FeedForwardConfigs()
        mix.d_model, mix.d_ff, mix.activation = N_TOKENS, 128, "GELU"
        transformer.encoder_attn = MLPMixer(mix.ffn)
        transformer.ffn.activation = "GELU"
    model = TransformerMLM(
        encoder=transformer.encoder,
        src_embed=transformer.src_embed,
        generator=transformer.generator,
    )
    optimizer = OptimizerConfigs()
    optimizer.parameters = model.parameters()
    optimizer.optimizer, optimizer.learning_rate, optimizer.d_model = "Noam", 1.0, D_MODEL
    return model, optimizer.optimizer


def held_out_loss(model: torch.nn.Module, rows: np.ndarray, mask_id: int) -> float:
    """Nats per masked character on fixed masks, dropout off."""
    masks = np.random.default_rng(SEED).random((DRAWS, *rows.shape)) < MASK_RATE
    model.eval()
    total = 0.0
    with torch.no_grad():
        for mask in masks:
            for start in range(0, len(rows), 512):
                part, hidden = rows[start : start + 512], mask[start : start + 512]
                shown = torch.from_numpy(np.where(hidden, mask_id, part).T.copy())
                logits = model(shown)[0].transpose(0, 1)[torch.from_numpy(hidden)]
                logits = logits[:, : mask_id - 1].double()  # characters only
                target = torch.from_numpy(part[hidden])
                total += torch.nn.functional.cross_entropy(logits, target, reduction="sum").item()
    model.train()
    return total / masks.sum()


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--mixer", choices=["mhsa", "mlp_mixer"], required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--score-every", type=int, default=0)
    parser.add_argument("--bursts", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = options.text.read_bytes().decode()
    characters = sorted(set(text))
    ids = np.searchsorted(np.array(characters), np.array(list(text)))
    cut = int(len(ids) * 0.9)
    train, held_out = torch.from_numpy(ids[:cut]), ids[cut:]
    rows = held_out[: len(held_out) // N_TOKENS * N_TOKENS].reshape(-1, N_TOKENS)
    pad_id, mask_id = len(characters), len(characters) + 1
    model, optimizer = build(options.mixer, mask_id + 1)
    mask = MLM(padding_token=pad_id, mask_token=mask_id, no_mask_tokens=[], n_tokens=mask_id + 1)
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=pad_id)
    model.train()

    def take_steps(n: int) -> float:
        start = time.process_time()
        for _ in range(n):
            at = torch.randint(len(train) - N_TOKENS, (N_ROWS,))
            shown, labels = mask(train[at + torch.arange(N_TOKENS)[:, None]])
            output = model(shown)[0]
            loss = loss_of(output.view(-1, output.shape[-1]), labels.view(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss.item()  # as its tracker reads it
        return time.process_time() - start

    if options.bursts:
        for line in sys.stdin:
            n_steps = int(line)
            print(json.dumps({"seconds_a_step": take_steps(n_steps) / n_steps}), flush=True)
        return
    spent, every = 0.0, options.score_every or options.steps
    for step in range(every, options.steps + 1, every):
        spent += take_steps(every)
        said = {"step": step, "cpu_seconds": round(spent, 3)}
        print(json.dumps(said | {"loss": held_out_loss(model, rows, mask_id)}), flush=True)


if __name__ == "__main__":
    main()
