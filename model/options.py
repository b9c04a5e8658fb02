"""The flags of the command `maskwright-train`."""

import argparse
from pathlib import Path

from model.config import PRESETS, SIZES
from model.corpus import REMOTES
from model.devices import DEVICES
from model.feedforward import FEEDFORWARDS
from model.layers import NORMS
from model.mixers import MIXERS
from model.optimizer import OPTIMIZERS
from model.sources import MIXES
from model.teacher import TEACHERS
from model.tokenizer import TRAINERS

STAGES = ("mlm", "embed")


def parser() -> argparse.ArgumentParser:
    """The flags of `maskwright-train`, with their help."""
    made = argparse.ArgumentParser(
        prog="maskwright-train",
        description="Train a masked-language-model encoder. Leaves a checkpoint, report.json, "
        "loss.png and a model card; Ctrl-C ends early, leaves the same, and --resume goes on. On "
        "several GPUs or processes: torchrun --nproc-per-node N -m model.cli …",
    )
    made.add_argument(
        "--stage",
        choices=STAGES,
        default="mlm",
        help="mlm: guess masked tokens; embed: go on from a run, for vectors of sentences too",
    )
    made.add_argument("--preset", choices=PRESETS, default="shakespeare")
    made.add_argument("--mixer", choices=MIXERS, default="mhsa")
    made.add_argument("--out", type=Path, help="directory (runs/PRESET-MIXER)")
    made.add_argument("--resume", type=Path, metavar="RUN", help="go on with an unfinished run")
    made.add_argument("--seed", type=int, default=0, help="same seed, same losses (0)")
    made.add_argument("--threads", type=int, default=0, help="CPU threads (every core)")
    made.add_argument("--device", choices=DEVICES, default="auto", help="auto: CUDA if there is")
    made.add_argument("--tensorboard", dest="board", action="store_true", help="write its logs")
    text = made.add_argument_group("text (default: the plays of Shakespeare that ship)")
    text.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="UTF-8 text, .xz too")
    text.add_argument(
        "--corpus",
        choices=(*MIXES, *REMOTES),
        help="one that maskwright-corpus built, or a download",
    )
    text.add_argument("--dataset", metavar="NAME[:CONFIG]", help="Hugging Face data set, or a file")
    text.add_argument("--column", help="the data set's column of text (text)")
    text.add_argument("--split", help="the data set's split (train)")
    text.add_argument("--tokenizer", choices=TRAINERS)
    text.add_argument("--vocab-size", type=int, help="ids of a bpe or wordpiece vocabulary")
    model = made.add_argument_group("encoder (other than the preset's)")
    model.add_argument("--size", choices=SIZES, help="width, depth and heads")
    model.add_argument("--activation", choices=FEEDFORWARDS)
    model.add_argument("--norm", choices=NORMS)
    model.add_argument("--dropout", type=float, help="share dropped")
    model.add_argument(
        "--words-from",
        dest="words",
        metavar="NAME",
        help=f"begin with the word embedding of a teacher: a directory, or {', '.join(TEACHERS)}",
    )
    embed = made.add_argument_group("stage embed (a teacher, or pairs, or both)")
    embed.add_argument(
        "--from", dest="start", type=Path, metavar="RUN", help="what it goes on from"
    )
    embed.add_argument(
        "--blend",
        nargs=2,
        metavar=("RUN", "SHARE"),
        help="begin with weights that lie such a share of the way from --from's to those of RUN",
    )
    embed.add_argument(
        "--teacher",
        metavar="NAME",
        help=f"directory of a sentence encoder, Hugging Face's layout, or: {', '.join(TEACHERS)}",
    )
    embed.add_argument(
        "--pairs", type=Path, metavar="FILE", help="two texts a row, and maybe a score"
    )
    embed.add_argument(
        "--sts", type=Path, metavar="FILE", help="scored pairs, for measuring alone: STS-B's layout"
    )
    embed.add_argument("--sentences", dest="n_sentences", type=int, help="that a teacher is asked")
    embed.add_argument("--batch-sentences", type=int, metavar="N", help="sentences in a step")
    embed.add_argument("--embed-weight", dest="weight", type=float, help="beside the masked loss")
    recipe = made.add_argument_group("recipe (other than the preset's, or the stage's)")
    recipe.add_argument("--steps", type=int, help="optimizer steps")
    recipe.add_argument("--seconds", type=float, help="training time instead of steps")
    recipe.add_argument("--optimizer", choices=OPTIMIZERS)
    recipe.add_argument("--lr", type=float, help="peak rate of AdamW or Adam")
    recipe.add_argument("--muon-lr", type=float, help="peak rate of Muon")
    recipe.add_argument("--warmup-steps", type=int)
    recipe.add_argument("--mask-rate", type=float, help="share of tokens that are predicted")
    recipe.add_argument("--row-lengths", type=int, nargs="+", metavar="N", help="tokens in a row")
    recipe.add_argument(
        "--line-start-share", type=float, help="share of rows that begin where a line does"
    )
    recipe.add_argument("--batch-tokens", type=int, help="tokens in a step")
    recipe.add_argument("--accumulate", type=int, metavar="N", help="parts a step is computed in")
    recipe.add_argument("--precision", choices=("auto", "fp32", "bf16"))
    recipe.add_argument("--compile", choices=("auto", "on", "off"), help="compile the blocks")
    recipe.add_argument("--eval-length", type=int, help="tokens in a held-out window")
    recipe.add_argument("--eval-every", type=int, metavar="STEPS")
    recipe.add_argument("--checkpoint-every", type=int, metavar="STEPS")
    recipe.add_argument("--log-every", type=int, metavar="STEPS")
    return made
