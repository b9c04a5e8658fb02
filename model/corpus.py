"""Where training text comes from: the one that ships, files, or a named public corpus.

A text that fits the memory is a `Corpus`; longer ones are read in pieces (`model.streams`).
"""

import hashlib
import http.client
import lzma
import os
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

# A long text's last tenth would take hours to score.
LONGEST_HELD_OUT = 1_000_000


class Text:
    """What training asks of a text, wherever it is kept.

    Attributes:
        name: What reports call it.
        licence: Of the text.
    """

    name: str
    licence: str

    @property
    def words(self) -> Sequence[str]:
        """Names that a vocabulary of pieces should hold whole."""
        return ()

    @property
    def n_characters(self) -> int:
        """Of all of it."""
        return self._measured[0]

    @property
    def sha256(self) -> str:
        """Hash of the text in UTF-8."""
        return self._measured[1]

    @cached_property
    def _measured(self) -> tuple[int, str]:
        n_characters, digest = 0, hashlib.sha256()
        for piece in self.pieces():
            n_characters += len(piece)
            digest.update(piece.encode())
        return n_characters, digest.hexdigest()

    def pieces(self) -> Iterator[str]:
        """All of it: what is trained on, then what is scored."""
        yield from self.training()
        yield self.held_out()

    def training(self) -> Iterator[str]:
        """The part to train on, in pieces."""
        raise NotImplementedError

    def held_out(self) -> str:
        """The part to score on."""
        raise NotImplementedError


@dataclass(frozen=True)
class Corpus(Text):
    """A text and where it is from."""

    name: str
    text: str
    licence: str

    @property
    def sha256(self) -> str:
        """Hash of the text in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def n_characters(self) -> int:
        """Of all of it."""
        return len(self.text)

    def split(self) -> tuple[str, str]:
        """(training text, held-out text)."""
        cut = held_out_from(len(self.text))
        return self.text[:cut], self.text[cut:]

    def training(self) -> Iterator[str]:
        """The part to train on, in one piece."""
        yield self.split()[0]

    def held_out(self) -> str:
        """The part to score on."""
        return self.split()[1]


def held_out_from(n_characters: int) -> int:
    """Where the held-out part begins: the last tenth, or the last `LONGEST_HELD_OUT`."""
    return max(int(n_characters * 0.9), n_characters - LONGEST_HELD_OUT)


@dataclass(frozen=True)
class Remote:
    """A public corpus that is fetched on request and must hash to `sha256`."""

    url: str
    sha256: str
    licence: str


def shipped() -> Corpus:
    """The plays of Shakespeare that come with the package, 1,115,394 characters.

    Nearly the Tiny Shakespeare of char-rnn: the same plays in the same layout, from Project
    Gutenberg's edition.
    """
    packed = resources.files("model").joinpath("data/shakespeare.txt.xz").read_bytes()
    return Corpus("shakespeare", lzma.decompress(packed).decode(), "public domain")


def from_files(paths: Sequence[Path]) -> Corpus:
    """The texts of UTF-8 files (`.xz` is unpacked), one after another.

    Raises:
        ValueError: A file is not UTF-8, an `.xz` is damaged, or all are empty.
    """
    texts = []
    for path in paths:
        data = path.read_bytes()
        try:
            texts.append((lzma.decompress(data) if path.suffix == ".xz" else data).decode())
        except lzma.LZMAError as cause:
            raise ValueError(f"{path} cannot be unpacked: {cause}") from None
        except UnicodeDecodeError as cause:
            raise ValueError(f"{path} is not UTF-8: byte {cause.start}") from None
    if not any(texts):
        raise ValueError(f"no text in {', '.join(map(str, paths))}")
    return Corpus("+".join(path.name for path in paths), "\n".join(texts), "not stated")


def fetch(name: str, *, cache: Path | None = None) -> Corpus:
    """A named public corpus, downloaded once into `cache` and checked each time.

    Raises:
        ValueError: The name is unknown, or what came does not match its checksum.
    """
    if name not in REMOTES:
        raise ValueError(f"corpus={name!r}; one of: shakespeare, {', '.join(REMOTES)}")
    remote, path = REMOTES[name], (cache or cache_directory()) / f"{name}.txt"
    if not path.exists():
        data = _download(remote.url)
        _check(data, remote, source=remote.url)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        unfinished.write_bytes(data)
        unfinished.replace(path)
    data = path.read_bytes()
    _check(data, remote, source=str(path))
    return Corpus(name, data.decode(), remote.licence)


def cache_directory() -> Path:
    """Where downloads are kept: `$XDG_CACHE_HOME/maskwright`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maskwright"


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data: bytes = answer.read()
    except http.client.HTTPException as cause:  # cut short, say; the rest are OSErrors
        raise OSError(f"{url} could not be read: {cause!r}") from None
    return data


def _check(data: bytes, remote: Remote, *, source: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != remote.sha256:
        raise ValueError(
            f"{source} has sha256 {found[:12]}…, not {remote.sha256[:12]}…; delete it and try again"
        )


REMOTES: dict[str, Remote] = {
    "tiny-shakespeare": Remote(
        url="https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        licence="public domain",
    ),
}
