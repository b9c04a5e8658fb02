"""Who may ask: API keys from a file, hashed; how many requests each may have open, and send."""

import contextlib
import hashlib
import hmac
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from service.errors import RateLimited, Unauthorized

# `sha256sum` writes such lines: the hash, then a name.
LINE = re.compile(r"([0-9a-f]{64})\s+([A-Za-z0-9][A-Za-z0-9._-]{0,63}|-)")
MAX_KEY_BYTES = 512

# Answered without a key: orchestrators have none, and the answers say nothing of the model.
OPEN_PATHS = frozenset({"/livez", "/readyz", "/health", "/v2/health/live", "/v2/health/ready"})


class Keys:
    """The keys that are valid, as SHA-256; none means that anyone may ask.

    A key is random and long, so that a hash without salt or stretching keeps it: nobody can try
    2**128 of them.

    Args:
        path: A file with a line `SHA256 NAME` for each key, `#` beginning a comment; None for no
            keys.
        max_open: Requests that one key may have open; 0 for any number.
        per_minute: Requests that one key may send in a minute; 0 for any number.
        now: Seconds, never going back.

    Raises:
        ValueError: The file cannot be read, has a line of another form, or no key.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        max_open: int = 0,
        per_minute: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._max_open, self._per_minute = path, max_open, per_minute
        self._now = now
        self._names: Mapping[bytes, str] = {}
        self._open: Counter[str] = Counter()
        self._spent_until: dict[str, float] = {}
        self.reload()

    def reload(self) -> int:
        """Read the file anew; how many keys there are.

        Raises:
            ValueError: As at the start; then the old keys stay valid.
        """
        if self._path is not None:
            self._names = _read(self._path)
            known = set(self._names.values())
            self._spent_until = {n: t for n, t in self._spent_until.items() if n in known}
        return len(self._names)

    def check(self, authorization: bytes | None) -> str | None:
        """The name of a request's key, or None where none is wanted.

        Raises:
            Unauthorized: It has none that is valid.
        """
        if not self._names:
            return None
        name = self._name(authorization or b"")
        if name is None:
            raise Unauthorized
        return name

    @contextlib.contextmanager
    def held(self, name: str | None) -> Iterator[None]:
        """While a request of a key is open.

        Raises:
            RateLimited: The key has as many open as it may, or has sent as many as it may.
        """
        if name is None:
            yield
            return
        if self._max_open and self._open[name] >= self._max_open:
            raise RateLimited(
                f"This key has {self._max_open} requests open, its most; send more as they are "
                "answered."
            )
        self._spend(name)
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    def _spend(self, name: str) -> None:
        """Take one request from a key's minute.

        Each takes its share of a minute from when the one before was due, and none may be more than
        a minute ahead: the virtual scheduling of the generic cell rate algorithm (ITU-T I.371).
        """
        if not self._per_minute:
            return
        now = self._now()
        spent_until = max(self._spent_until.get(name, now), now) + 60 / self._per_minute
        if (wait := spent_until - now - 60) > 1e-6:  # what adding up thirds of a second leaves
            raise RateLimited(
                f"This key has sent {self._per_minute} requests in a minute, its most; the next "
                f"may come in {wait:.1f} s.",
                retry_after=wait,
            )
        self._spent_until[name] = spent_until

    def _name(self, authorization: bytes) -> str | None:
        scheme, _, key = authorization.partition(b" ")
        key = key.strip()
        if scheme.lower() != b"bearer" or not key or len(key) > MAX_KEY_BYTES:
            return None
        digest, found = hashlib.sha256(key).hexdigest().encode(), None
        for known, name in self._names.items():  # all of them, whichever fits
            if hmac.compare_digest(known, digest):
                found = name
        return found


def _read(path: Path) -> dict[bytes, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as cause:
        raise ValueError(f"api_keys={str(path)!r} cannot be read: {cause}") from None
    names: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        # The line itself is not repeated: it may be a key that was written down by mistake.
        if not (match := LINE.fullmatch(text)):
            raise ValueError(
                f"api_keys={str(path)!r}: line {number} is not a SHA-256 in hexadecimal and a name"
            )
        digest, name = match.groups()
        names[digest.encode()] = f"key-{digest[:6]}" if name == "-" else name
    if not names:
        raise ValueError(f"api_keys={str(path)!r} has no key")
    return names
