"""Whether the service takes work: starting, ready, draining or failed."""

import asyncio
import time
from collections.abc import Callable

from service.errors import Draining, NotReady
from service.metrics import Metrics

PROBE_SECONDS = 2.0  # that a ready probe waits for a check, at most


class Lifecycle:
    """The state that /livez, /readyz and the metrics show.

    Live until something fails that only a new process mends; ready once the model is verified and
    warm, and while its golden answers stay right; draining from SIGTERM on.

    Args:
        check: Computes the golden answers anew, in a thread; raises with the reason if one is
            wrong.
        check_seconds: Age from which a ready probe has them computed anew; 0 for never.
    """

    def __init__(
        self, metrics: Metrics, *, check: Callable[[], None], check_seconds: float
    ) -> None:
        self._metrics, self._check, self._check_seconds = metrics, check, check_seconds
        self._started = False
        self.draining = False
        self.failure: str | None = None
        self._wrong: str | None = None  # what the last check found
        self._checked = time.monotonic()
        self._checking: asyncio.Task[None] | None = None
        self._on_failure: Callable[[], None] = lambda: None

    @property
    def ready(self) -> bool:
        """Whether work should be sent."""
        return self._started and not (self.draining or self.failure or self._wrong)

    def start(self) -> None:
        """Take work."""
        self._started = True
        self._checked = time.monotonic()
        self._show()

    def drain(self) -> None:
        """Say that the end is near, so that balancers send work elsewhere."""
        self.draining = True
        self._show()

    def fail(self, reason: str) -> None:
        """Say that this process cannot go on; whoever runs it is told by `when_failed`."""
        if self.failure is None:
            self.failure = reason
            self._show()
            self._on_failure()

    def when_failed(self, call: Callable[[], None]) -> None:
        """What `fail` calls."""
        self._on_failure = call

    def wrong(self, reason: str | None) -> None:
        """Say what is wrong with the answers, or that they are right."""
        self._wrong, self._checked = reason, time.monotonic()
        self._show()

    def check_live(self) -> None:
        """Answer a live probe.

        Raises:
            NotReady: Something failed that only a new process mends.
        """
        if self.failure:
            raise NotReady(f"The service has failed: {self.failure}.")

    async def probe(self) -> None:
        """Answer a ready probe; runs the check if it is due.

        Raises:
            Draining, NotReady: With the reason.
        """
        if self.draining:
            raise Draining
        self.check_live()
        if not self._started:
            raise NotReady("The model is not loaded yet.")
        due = time.monotonic() - self._checked >= self._check_seconds
        if self._check_seconds and (due or self._wrong) and self._checking is None:
            self._checking = asyncio.create_task(self._run_check())
        if self._checking is not None:
            # A model under load may take longer: then the last answer stands.
            await asyncio.wait({self._checking}, timeout=PROBE_SECONDS)
        if self._wrong:
            raise NotReady(f"The model answers wrongly: {self._wrong}.")

    async def _run_check(self) -> None:
        try:
            await asyncio.to_thread(self._check)
        except Exception as error:  # told to every probe  # noqa: BLE001
            self.wrong(str(error).splitlines()[0] if str(error) else type(error).__name__)
        else:
            self.wrong(None)
        finally:
            self._checking = None

    def _show(self) -> None:
        self._metrics.ready.set(self.ready)
        self._metrics.draining.set(self.draining)
