"""A word embedding to begin with: alike where the teacher's is, at the scale of a random one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint import load_checkpoint
from model.cli import main
from model.corpus import shipped
from model.teacher import Teacher
from model.tokenizer import Tokenizer
from model.words import word_embedding
from tests.model.conftest import InterruptingStream


@pytest.fixture(scope="module")
def teacher(tiny_teacher: Path) -> Teacher:
    return Teacher(tiny_teacher)


def cosines(rows: np.ndarray) -> np.ndarray:
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units @ units.T


def test_tokens_of_the_same_name_are_as_alike_as_the_teachers(
    teacher: Teacher, tokenizers: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers["wordpiece"]  # the teacher's own vocabulary
    made = word_embedding(teacher, tokenizer, d_model=16)
    there = ~np.isnan(made[:, 0])
    assert set(np.flatnonzero(~there)) == tokenizer.special_ids
    known = teacher.embedding[there]
    assert np.allclose(cosines(made[there]), cosines(known - known.mean(axis=0)), atol=1e-4)


@pytest.mark.parametrize("kind", ["char", "bpe", "wordpiece"])
@pytest.mark.parametrize("d_model", [8, 16, 64])
def test_every_row_is_as_long_as_one_of_a_standard_normal_and_every_feature_carries_something(
    teacher: Teacher, tokenizers: dict[str, Tokenizer], kind: str, d_model: int
) -> None:
    made = word_embedding(teacher, tokenizers[kind], d_model=d_model)
    assert made.shape == (tokenizers[kind].vocab_size, d_model)
    rows = made[~np.isnan(made[:, 0])]
    assert len(rows) > 20
    assert np.allclose((rows**2).mean(axis=1), 1, atol=1e-4)
    assert (rows.std(axis=0) > 0.2).all()


def test_a_token_that_the_teacher_lacks_begins_with_what_it_falls_into(
    teacher: Teacher, tokenizers: dict[str, Tokenizer]
) -> None:
    made = word_embedding(teacher, tokenizers["bpe"], d_model=16)
    token_id = next(
        i
        for i in range(tokenizers["bpe"].vocab_size)
        if len(teacher.ids_of(tokenizers["bpe"].token_str(i).strip())) > 1
    )
    assert not np.isnan(made[token_id]).any()


def test_a_run_begins_with_the_teachers_words_and_says_so(
    tiny_teacher: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(shipped().text[:20_000])
    small = ["--preset", "tiny", "--tokenizer", "wordpiece", "--vocab-size", "300", "--steps", "1"]
    still = ["--lr", "0", "--muon-lr", "0", "--threads", "1"]
    for name, more in {"with": ["--words-from", str(tiny_teacher)], "without": []}.items():
        files = ["--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / name)]
        assert main([*small, *still, *files, *more]) == 0
    one, other = (load_checkpoint(tmp_path / name) for name in ("with", "without"))
    made = word_embedding(Teacher(tiny_teacher), one.tokenizer, d_model=one.config.d_model)
    began, random = (torch.from_numpy(made), other.encoder.embedding.weight)
    expected = torch.where(began.isnan(), random, began)
    assert torch.equal(one.encoder.embedding.weight, expected)
    report = json.loads((tmp_path / "with/report.json").read_text())
    assert report["source"]["words"].startswith(f"{tiny_teacher.name}, sha256 ")


def test_a_run_that_was_stopped_still_says_whose_words_it_began_with(
    tiny_teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(shipped().text[:20_000])
    small = ["--preset", "tiny", "--tokenizer", "wordpiece", "--vocab-size", "300", "--steps", "3"]
    more = ["--eval-every", "1", "--log-every", "1", "--threads", "1"]
    begun = ["--text", str(text), "--out", str(out), "--words-from", str(tiny_teacher)]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", InterruptingStream())
        assert main([*small, *more, *begun]) == 130
    before = load_checkpoint(out).summary["source"]["words"]
    assert main(["--resume", str(out), "--text", str(text), "--threads", "1"]) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["source"]["words"] == before
    assert before in (out / "README.md").read_text()


def test_the_second_stage_keeps_the_words_of_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["--stage", "embed", "--from", str(tmp_path), "--words-from", "minilm"]
    assert main(command) == 2
    assert "leave out: --words-from" in capsys.readouterr().err
