"""The command `maskwright-serve`."""

import os
import sys

from export.artefact import InvalidArtefact
from service.app import create_app
from service.logs import start_logging
from service.providers import ProviderUnavailable
from service.registry import Registry, models_of
from service.server import serve
from service.settings import read_settings


def main(arguments: list[str] | None = None) -> int:
    """Load the models and serve them; 2 with one line on standard error if it cannot be."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments, os.environ)
    except ValueError as error:
        return _refused(error)
    log = start_logging(level=settings.log_level, style=settings.log_format)
    try:
        try:
            registry = models_of(settings)
            app = create_app(settings, registry, n_workers=registry.default.engine.n_workers)
        except (ValueError, InvalidArtefact, ProviderUnavailable) as error:
            return _refused(error)
        except KeyboardInterrupt:
            return 130
        return serve(app, settings, greeting=_greeting(registry))
    finally:
        log.close()


def _refused(error: Exception) -> int:
    print(f"maskwright-serve: {error}", file=sys.stderr)  # noqa: T201 the command's output
    return 2


def _greeting(registry: Registry) -> str:
    model = registry.default
    variant = model.engine.variant("encode")
    names, provider = ", ".join(registry.names), model.engine.provider.name
    return f"maskwright serves {names} ({provider}, {variant.precision})"


if __name__ == "__main__":
    sys.exit(main())
