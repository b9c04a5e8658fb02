"""Models and keys read anew while the old ones serve, and put in their place in one step."""

import asyncio
import logging

from export.artefact import InvalidArtefact
from service.lifecycle import Lifecycle
from service.memory import give_back
from service.metrics import Metrics
from service.models import Model
from service.providers import ProviderUnavailable
from service.registry import Registry, models_of
from service.security import Keys
from service.settings import Settings

logger = logging.getLogger(__name__)


class ReloadFailed(Exception):
    """What was found is not good; everything stays as it was. The message says why."""


class Reloader:
    """Replaces the models of a registry, and the keys, by what their files hold now.

    All or none: each model is loaded, checked against its hashes and its golden answers, and
    warmed up, before the first of them is put in place. A request looks its model up once, so one
    that runs ends on the model it began with, and no batch mixes the two.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        keys: Keys,
        metrics: Metrics,
        lifecycle: Lifecycle,
        settings: Settings,
    ) -> None:
        self._registry, self._keys, self._metrics = registry, keys, metrics
        self._lifecycle, self._settings = lifecycle, settings
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> list[str]:
        """Read everything anew; the sha256 of each model that serves now, in order.

        Raises:
            ReloadFailed: A file is wrong; what served before goes on.
        """
        async with self._one_at_a_time:
            try:
                models = await asyncio.to_thread(self._load)
                self._keys.reload()
            except (ValueError, InvalidArtefact, ProviderUnavailable) as error:
                self._metrics.reloads.labels("failed").inc()
                logger.error("reload failed, all stays as it was: %s", error)
                raise ReloadFailed(str(error)) from error
            for model in models:
                self._registry.swap(model)
                self._metrics.know_model(model.facts(self._settings.device))
            self._lifecycle.wrong(None)
            self._metrics.reloads.labels("done").inc()
            hashes = [model.artefact.sha256 for model in models]
            logger.info("reloaded: %s", ", ".join(sha256[:12] for sha256 in hashes))
            del models, model
            await asyncio.to_thread(give_back)
            return hashes

    def _load(self) -> list[Model]:
        provider = self._registry.default.engine.provider.name
        models = models_of(self._settings, device=provider).models
        if (names := [model.name for model in models]) != self._registry.names:
            raise ValueError(
                f"the models are called {', '.join(names)} now, and requests know them as "
                f"{', '.join(self._registry.names)}; name them in the setting: NAME=DIR"
            )
        return models
