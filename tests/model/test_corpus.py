"""Corpora: the one that ships, files, and a download that is checked."""

import hashlib
import lzma
from pathlib import Path

import pytest

from model.corpus import REMOTES, Corpus, Remote, cache_directory, fetch, from_files, shipped

NAME, TEXT = "tiny-shakespeare", "Speak, speak.\n"


def test_the_shipped_corpus_has_the_characters_it_says() -> None:
    corpus = shipped()
    assert len(corpus.text) == 1_115_394
    assert corpus.text.isascii()
    assert corpus.licence == "public domain"


def test_the_hash_of_a_corpus_is_that_of_its_text_in_utf8() -> None:
    assert Corpus("x", "é", "none").sha256 == hashlib.sha256("é".encode()).hexdigest()


def test_the_last_tenth_is_held_out() -> None:
    assert Corpus("x", "0123456789" * 2, "none").split() == ("0123456789" + "01234567", "89")


def test_the_parts_of_the_shipped_corpus_make_the_whole() -> None:
    training, held_out = shipped().split()
    assert training + held_out == shipped().text
    assert len(training) == 1_003_854


def test_files_are_read_one_after_another_and_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("één\n".encode())
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress("漢字".encode()))
    corpus = from_files([tmp_path / "a.txt", tmp_path / "b.txt.xz"])
    assert corpus.text == "één\n\n漢字"
    assert corpus.name == "a.txt+b.txt.xz"


def test_a_file_that_is_not_utf8_is_named_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9 ")
    with pytest.raises(ValueError, match=f"^{path} is not UTF-8: byte 3$"):
        from_files([path])


@pytest.mark.parametrize("data", [b"not packed", lzma.compress(b"text")[:-4]])
def test_a_damaged_xz_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged.xz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"^{path} cannot be unpacked: "):
        from_files([path])


def test_files_without_any_text_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"^no text in {tmp_path}/a, {tmp_path}/b$"):
        from_files([tmp_path / "a", tmp_path / "b"])


def test_an_unknown_corpus_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="corpus='bible'; one of: shakespeare, tiny-shakespeare"):
        fetch("bible")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the named corpus is fetched from."""
    path = tmp_path / "remote.txt"
    path.write_bytes(TEXT.encode())
    sha256 = hashlib.sha256(TEXT.encode()).hexdigest()
    monkeypatch.setitem(REMOTES, NAME, Remote(path.as_uri(), sha256, "public domain"))
    return path


def test_a_named_corpus_is_fetched_into_the_cache(tmp_path: Path, remote: Path) -> None:
    cache = tmp_path / "deep" / "cache"
    assert fetch(NAME, cache=cache) == Corpus(NAME, TEXT, "public domain")
    assert [path.name for path in cache.iterdir()] == [f"{NAME}.txt"]


def test_a_cached_corpus_is_not_fetched_again(tmp_path: Path, remote: Path) -> None:
    fetch(NAME, cache=tmp_path / "cache")
    remote.unlink()
    assert fetch(NAME, cache=tmp_path / "cache").text == TEXT


def test_a_download_with_another_checksum_is_refused_and_not_kept(
    tmp_path: Path, remote: Path
) -> None:
    remote.write_text("Something else.")
    with pytest.raises(ValueError, match=f"^{remote.as_uri()} has sha256 [0-9a-f]{{12}}…, not "):
        fetch(NAME, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_cached_file_that_changed_is_refused_by_its_path(tmp_path: Path, remote: Path) -> None:
    fetch(NAME, cache=tmp_path / "cache")
    path = tmp_path / "cache" / f"{NAME}.txt"
    path.write_text("Something else.")
    with pytest.raises(ValueError, match=f"^{path} has sha256 .*; delete it and try again$"):
        fetch(NAME, cache=tmp_path / "cache")


def test_a_corpus_that_cannot_be_reached_is_an_os_error(tmp_path: Path, remote: Path) -> None:
    remote.unlink()
    with pytest.raises(OSError, match=r"remote\.txt"):
        fetch(NAME, cache=tmp_path / "cache")


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "maskwright"
    fetch(NAME)
    assert (tmp_path / "maskwright" / f"{NAME}.txt").read_text() == TEXT


def test_without_a_word_from_the_environment_the_cache_is_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "maskwright"
