"""Whether the service takes work: starting, ready or draining."""

from service.errors import Draining, NotReady
from service.metrics import Metrics


class Lifecycle:
    """The state that /readyz and the metrics show.

    Live from the start; ready once the model is verified and warm; draining from SIGTERM on.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.ready = False
        self.draining = False

    def start(self) -> None:
        """Take work."""
        self._set(ready=True, draining=False)

    def drain(self) -> None:
        """Say that the end is near, so that balancers send work elsewhere."""
        self._set(ready=False, draining=True)

    def _set(self, *, ready: bool, draining: bool) -> None:
        self.ready, self.draining = ready, draining
        self._metrics.ready.set(ready)
        self._metrics.draining.set(draining)


def check_ready(lifecycle: Lifecycle) -> None:
    """Nothing if work should be sent here.

    Raises:
        Draining, NotReady: It should not.
    """
    if lifecycle.draining:
        raise Draining
    if not lifecycle.ready:
        raise NotReady("The model is not loaded yet.")
