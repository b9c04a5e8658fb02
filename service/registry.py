"""The models of one process, by name: which answers a request, and the one place to swap it."""

import re
from collections.abc import Sequence
from typing import Any

from service.errors import UnknownModel
from service.models import Model, load_model
from service.settings import Settings

# Names stand in metrics, paths and headers.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Registry:
    """Loaded models by name; the first answers requests that name none.

    A request looks its model up once and keeps it, so a swap changes no request that runs.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = {model.name: model for model in models}
        if len(self._models) < len(models) or not models:
            raise ValueError("models need distinct names, and there must be one")

    @property
    def default(self) -> Model:
        """The model of a request that names none."""
        return next(iter(self._models.values()))

    @property
    def names(self) -> list[str]:
        """The names of the models, the default first."""
        return list(self._models)

    @property
    def models(self) -> list[Model]:
        """The models, the default first."""
        return list(self._models.values())

    def find(self, name: str | None) -> Model:
        """The model of a name, or the default for None.

        Raises:
            UnknownModel: There is none of that name.
        """
        if name is None:
            return self.default
        if name not in self._models:
            raise UnknownModel(served=", ".join(self._models))
        return self._models[name]

    def verify(self) -> None:
        """Compute every model's golden answers anew.

        Raises:
            InvalidArtefact: One is wrong.
        """
        for model in self.models:
            model.verify()

    def swap(self, model: Model) -> Model:
        """Put a loaded model in the place of the one of its name, which is given back.

        Raises:
            KeyError: No model of that name is served: names are part of the configuration.
        """
        replaced = self._models[model.name]
        self._models[model.name] = model
        return replaced


def read_sources(text: str) -> list[tuple[str | None, str]]:
    """The (name, directory or bundled name) of each model in the setting `model`.

    Several are separated by commas, each `NAME=DIR`, or `DIR` for the artefact's own name.

    Raises:
        ValueError: A name cannot be one, or stands twice.
    """
    sources: list[tuple[str | None, str]] = []
    for part in text.split(","):
        name, equals, directory = part.strip().partition("=")
        if not equals or "/" in name:  # a directory whose own name has a = in it
            sources.append((None, part.strip()))
        elif not NAME.fullmatch(name):
            raise ValueError(
                f"model={part.strip()!r}: a name is at most 64 letters, digits, dots, dashes and "
                "underscores, and begins with a letter or digit"
            )
        else:
            sources.append((name, directory))
    names = [name for name, _ in sources if name is not None]
    if len(set(names)) < len(names):
        raise ValueError(f"model={text!r} gives a name twice")
    return sources


def models_of(settings: Settings, *, device: str | None = None) -> Registry:
    """The models that settings name, as `load_models`.

    Args:
        device: Instead of the settings' own.
    """
    return load_models(
        settings.model,
        device=device or settings.device,
        precision=settings.precision,
        n_threads=settings.threads,
        gpu_memory_mib=settings.gpu_memory_mib,
    )


def load_models(text: str, *, device: str, **how: Any) -> Registry:
    """Load every model that the setting `model` lists; all on the provider of the first.

    Args:
        how: Of `load_model`: precision, n_threads, gpu_memory_mib.

    Raises:
        ValueError, InvalidArtefact, ProviderUnavailable: As `load_model`, and if two have one name.
    """
    models: list[Model] = []
    for name, source in read_sources(text):
        model = load_model(source, device=device, name=name, **how)
        if any(model.name == other.name for other in models):
            raise ValueError(f"two models are called {model.name!r}; name them: NAME=DIR")
        models.append(model)
        device = models[0].engine.provider.name
    return Registry(models)
