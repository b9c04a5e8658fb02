"""Load, failures and abuse against a running server; what was found beside what must be.

`python -m tests.chaos [--short] [NAME...]`. Everything runs on 127.0.0.1, bounded in count and
time. Checks of speed are left out of the short form: a busy machine fails them.
"""

import argparse
import sys
import time
from collections.abc import Callable

from tests.chaos.answers import golden, soak
from tests.chaos.artefacts import damaged, reloads
from tests.chaos.drain import rolling, sigterm
from tests.chaos.egress import egress
from tests.chaos.figures import Figure
from tests.chaos.leaving import disconnects, slow
from tests.chaos.overload import overload
from tests.chaos.servers import logs

CHECKS: dict[str, Callable[..., list[Figure]]] = {
    "sigterm": sigterm,
    "rolling": rolling,
    "disconnects": disconnects,
    "damaged": damaged,
    "reloads": reloads,
    "egress": egress,
    "golden": golden,
    "slow": slow,
    "overload": overload,
    "soak": soak,
}
SHORT = ("sigterm", "rolling", "disconnects", "damaged", "reloads", "egress", "golden")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--short", action="store_true", help="a few minutes, for every change")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHECKS))
    given = parser.parse_args()
    if unknown := set(given.names) - set(CHECKS):
        parser.error(f"{', '.join(sorted(unknown))}; one of: {', '.join(CHECKS)}")
    missed = 0
    whole = [name for name in CHECKS if name != "soak"]
    for name in given.names or (SHORT if given.short else whole):
        begun = time.monotonic()
        missed += _told(CHECKS[name](full=not given.short))
        sys.stderr.write(f"{name}: {time.monotonic() - begun:.0f} s\n")
    missed += _told([logs()])
    return 1 if missed else 0


def _told(figures: list[Figure]) -> int:
    """Print them; how many miss their bar."""
    for figure in figures:
        verdict = {True: "ok", False: "MISSED", None: ""}[figure.ok]
        line = f"| {figure.check} | {figure.what} | {figure.found} | {figure.bar} | {verdict} |"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return sum(figure.ok is False for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
