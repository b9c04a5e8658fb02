"""Bulk embedding: every text once, in order, however often the run is stopped."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.bulk import Options, OtherJob, embed_corpus, embed_texts
from service.bulk_cli import main
from service.bulk_files import BadInput, read_texts
from service.models import Model, Work

TEXTS = ["to be", "", "or not to be, that is the question " * 3, "a", "\tb", "to be"] * 7


@pytest.fixture
def model(model_of: Callable[..., Model]) -> Model:
    return model_of("mhsa")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    return file


def rows(out: Path) -> list[dict[str, object]]:
    tables = [pq.read_table(part) for part in sorted(out.glob("part-*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def test_texts_at_hand_get_the_vectors_that_a_file_of_them_gets(
    model: Model, corpus: Path, tmp_path: Path
) -> None:
    embed_corpus(model, [corpus], tmp_path / "out", Options(), n_workers=2)
    vectors, empty, truncated = embed_texts(model, TEXTS, Options(), n_workers=2)
    for number, row in enumerate(rows(tmp_path / "out")):
        assert (row["vector"] is None) == empty[number]
        assert row["truncated"] == truncated[number]
        assert np.array_equal(
            np.float32(row["vector"] or 0), vectors[number] if row["vector"] else 0
        )


def test_every_text_has_its_row_in_order_and_its_own_vector(
    model: Model, corpus: Path, tmp_path: Path
) -> None:
    done = embed_corpus(model, [corpus], tmp_path / "out", Options(chunk=10), n_workers=2)
    found = rows(tmp_path / "out")
    assert [row["row"] for row in found] == list(range(len(TEXTS)))
    assert {row["file"] for row in found} == {str(corpus)}
    room = model.max_tokens - model.tokenizer.n_wrap
    for text, row in zip(TEXTS, found, strict=True):
        if not text:
            assert row["vector"] is None
            continue
        ids = model.tokenizer.encode(text).ids
        assert row["truncated"] == (len(ids) > room)
        work = Work(model.tokenizer.wrap(ids[:room]), frozenset({"pooled_mean"}))
        (alone,) = model.run("encode", [work])
        vector = alone["pooled_mean"]
        expected = vector / np.linalg.norm(vector)
        assert np.abs(np.array(row["vector"]) - expected).max() <= 1e-5
    assert (done.texts, done.empty, done.truncated) == (42, 7, 7)


def test_a_run_that_was_stopped_computes_only_what_is_missing_and_ends_the_same(
    model: Model, corpus: Path, tmp_path: Path
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for out in (whole, stopped):
        embed_corpus(model, [corpus], out, Options(chunk=10), n_workers=2)
    kept = (stopped / "part-000001.parquet").stat().st_mtime_ns
    (stopped / "part-000002.parquet").rename(stopped / "part-000002.unfinished")  # cut off there
    (stopped / "part-000004.parquet").unlink()
    again = embed_corpus(model, [corpus], stopped, Options(chunk=10), n_workers=1)
    assert again.kept == 30
    assert (stopped / "part-000001.parquet").stat().st_mtime_ns == kept
    for part in sorted(whole.glob("part-*.parquet")):
        assert (stopped / part.name).read_bytes() == part.read_bytes()


def test_output_of_another_run_is_not_mixed_with(
    model: Model, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    embed_corpus(model, [corpus], out, Options(), n_workers=1)
    with pytest.raises(OtherJob, match="another normalize"):
        embed_corpus(model, [corpus], out, Options(normalize=False), n_workers=1)
    corpus.write_text("another text\n")
    with pytest.raises(OtherJob, match="another files"):
        embed_corpus(model, [corpus], out, Options(), n_workers=1)
    with pytest.raises(OtherJob, match="not empty"):
        embed_corpus(model, [corpus], tmp_path, Options(), n_workers=1)


def test_text_json_lines_and_parquet_hold_the_same_texts(tmp_path: Path) -> None:
    texts = ["to be", "", "[MASK] ünd\u2028more"]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    lines = [json.dumps({"body": text, "n": 1}) for text in texts]
    (tmp_path / "b.jsonl").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.table({"n": [1, 2, 3], "body": texts}), tmp_path / "c.parquet")
    files = [tmp_path / name for name in ("a.txt", "b.jsonl", "c.parquet")]
    found = list(read_texts(files, column="body"))
    assert [text.text for text in found] == texts * 3
    assert [text.row for text in found] == [0, 1, 2] * 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', "line 2: no JSON object with 'text'"),
        ("a.jsonl", b"[1]\n", "line 1"),
        ("a.jsonl", b'{"text": 5}\n', "row 0: 'text' is not a text"),
        ("a.parquet", b"PAR1", "not a Parquet file"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        list(read_texts([tmp_path / name], column="text"))


def test_the_command_embeds_and_refuses_with_one_line(
    artefact: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(artefact), "--device", "cpu", "--out", str(tmp_path / "out")]
    assert main([str(corpus), *flags]) == 0
    assert "42 rows" in capsys.readouterr().out
    assert main([str(corpus), *flags, "--pooling", "sum"]) == 2
    assert main([str(tmp_path / "nowhere"), *flags]) == 2
    refused = capsys.readouterr().err.splitlines()
    assert "one of: mean" in refused[0]
    assert "is not a file" in refused[1]
