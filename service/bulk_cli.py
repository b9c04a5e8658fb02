"""The command `maskwright-embed`: a corpus to vectors in Parquet."""

import argparse
import sys
import time
from pathlib import Path

from export.artefact import InvalidArtefact
from service.models import load_model
from service.providers import ProviderUnavailable


def main(arguments: list[str] | None = None) -> int:
    """Embed the texts of files; 2 with one line on standard error if that cannot be."""
    asked = _parser().parse_args(arguments)
    try:
        from service.bulk import Options, OtherJob, Progress, embed_corpus
        from service.bulk_files import BadInput
    except ModuleNotFoundError as missing:
        if missing.name != "pyarrow":
            raise
        return _refuse("pyarrow is not installed; pip install 'maskwright[bulk]'")
    try:
        for file in asked.files:
            if not file.is_file():
                raise BadInput(f"{file} is not a file")
        model = load_model(asked.model, device=asked.device, n_threads=asked.threads)
        if asked.pooling not in model.poolings:
            raise ValueError(f"pooling={asked.pooling!r}; one of: {', '.join(model.poolings)}")
        options = Options(
            pooling=asked.pooling, normalize=asked.normalize, column=asked.column, chunk=asked.chunk
        )
        begun = time.monotonic()

        def tell(progress: Progress) -> None:
            seconds = time.monotonic() - begun
            print(  # noqa: T201 the command's output
                f"{progress.texts:,} texts ({progress.kept:,} from before), "
                f"{progress.tokens:,} tokens, {progress.tokens / seconds:,.0f} tokens/s",
                file=sys.stderr,
                flush=True,
            )

        done = embed_corpus(
            model,
            asked.files,
            asked.out,
            options,
            n_workers=model.engine.n_workers,
            tell=tell,
        )
    except (BadInput, OtherJob, ValueError, InvalidArtefact, ProviderUnavailable) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130
    print(  # noqa: T201 the command's output
        f"{asked.out}: {done.texts:,} rows by {model.name} on {model.engine.provider.name}; "
        f"{done.empty:,} without text, {done.truncated:,} cut"
    )
    return 0


def _refuse(reason: str) -> int:
    print(f"maskwright-embed: {reason}", file=sys.stderr)  # noqa: T201 the command's output
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskwright-embed",
        description="Embed every text of files into a folder of Parquet files. A run that was "
        "stopped goes on where it was when it is started again.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=".jsonl or .parquet with a column of texts; anything else: a text on each line",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for part-*.parquet")
    parser.add_argument(
        "--model", default="english-mhsa", help="artefact directory, or a bundled name"
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--pooling", default="mean", help="how tokens become one vector")
    parser.add_argument(
        "--normalize",
        default=True,
        action=argparse.BooleanOptionalAction,
        help="scale vectors to length 1",
    )
    parser.add_argument("--column", default="text", help="field or column that holds the text")
    parser.add_argument("--threads", default=0, type=int, help="on a CPU; 0 takes one per core")
    parser.add_argument("--chunk", default=16384, type=int, help="texts in a part")
    return parser


if __name__ == "__main__":
    sys.exit(main())
