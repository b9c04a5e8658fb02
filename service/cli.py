"""The command `maskwright-serve`."""

import os
import sys

from export.artefact import InvalidArtefact
from service.app import create_app
from service.logs import start_logging
from service.providers import ProviderUnavailable
from service.registry import models_of
from service.server import serve
from service.settings import read_settings


def main(arguments: list[str] | None = None) -> int:
    """Load the models and serve them; 2 with one line on standard error if it cannot be."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments, os.environ)
        registry = models_of(settings)
        app = create_app(settings, registry, n_workers=registry.default.engine.n_workers)
    except (ValueError, InvalidArtefact, ProviderUnavailable) as error:
        print(f"maskwright-serve: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    except KeyboardInterrupt:
        return 130
    model = registry.default
    variant = model.engine.variant("encode")
    names, provider = ", ".join(registry.names), model.engine.provider.name
    greeting = f"maskwright serves {names} ({provider}, {variant.precision})"
    log = start_logging(level=settings.log_level, style=settings.log_format)
    try:
        return serve(app, settings, greeting=greeting)
    finally:
        log.close()


if __name__ == "__main__":
    sys.exit(main())
