"""A checkpoint as a directory that transformers.js and optimum load.

They know architectures by name, and ours has none: it stands as BERT's, whose inputs and outputs
its graph has. What the graph computes is its own affair; nobody rebuilds it from the config. One
thing differs from the service: a special token written out in a text, as [PAD], is that token to
those libraries, and text to us.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from export.graphs import FORMS, export_graph
from export.parity import measure
from export.places import new_directory
from model.checkpoint import Checkpoint
from model.config import EncoderConfig
from model.tokenizer import END, MASK, PAD, START, UNKNOWN, Tokenizer

GRAPH = "onnx/model.onnx"  # where both look
FORM = "decomposed"  # an operator set that a browser's runtime has
OURS = "maskwright"  # a key of config.json that others do not have


def write_hugging_face(
    checkpoint: Checkpoint,
    out: Path,
    *,
    replace: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Write `config.json`, the tokenizer's files and a graph of logits and hidden states.

    Raises:
        FileExistsError: `out` exists and `replace` is false, or it was not written by this.
        export.parity.ParityError: The graph does not say what the encoder says.
    """
    with new_directory(out, ours=_is_export, replace=replace) as directory:
        path = directory / GRAPH
        path.parent.mkdir()
        tell(f"exporting every-logit, {FORM}")
        onnx.save(export_graph(checkpoint.encoder, "every-logit", FORMS[FORM]), path)
        parity = measure(path, "every-logit", checkpoint.encoder)
        tell(f"within {max(parity.to_torch.values()):.1e} of torch")
        for name, fields in {
            "config.json": _config(checkpoint.config, checkpoint.tokenizer),
            "tokenizer_config.json": _tokenizer_config(checkpoint.config, checkpoint.tokenizer),
            "tokenizer.json": json.loads(_wrapping(checkpoint.tokenizer).to_str()),
        }.items():
            text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
            (directory / name).write_text(text, encoding="utf-8")


def _is_export(directory: Path) -> bool:
    path = directory / "config.json"
    return path.is_file() and f'"{OURS}": '.encode() in path.read_bytes()


def _config(config: EncoderConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "intermediate_size": config.d_feedforward,
        "max_position_embeddings": config.max_tokens,
        "pad_token_id": tokenizer.pad_id,
        OURS: {"mixer": config.mixer},
    }


def _tokenizer_config(config: EncoderConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    tokens = {"mask_token": MASK, "pad_token": PAD, "unk_token": UNKNOWN}
    if tokenizer.n_wrap:
        tokens |= {"cls_token": START, "sep_token": END}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        **tokens,
    }


def _wrapping(tokenizer: Tokenizer) -> Backend:
    """The tokenizer with prefix and suffix put around a text by itself, as those expect."""
    backend = Backend.from_str(tokenizer.to_json())
    if tokenizer.n_wrap:
        (start,), (end,) = tokenizer.prefix, tokenizer.suffix
        backend.post_processor = TemplateProcessing(
            single=f"{START} $A {END}",
            pair=f"{START} $A {END} $B {END}",
            special_tokens=[(START, start), (END, end)],
        )
    return backend
