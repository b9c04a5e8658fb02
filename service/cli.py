"""The command `maskwright-serve`."""

import os
import sys

from export.artefact import InvalidArtefact
from service.app import create_app
from service.logs import start_logging
from service.models import Model
from service.providers import ProviderUnavailable
from service.registry import load_models
from service.server import serve
from service.settings import read_settings


def main(arguments: list[str] | None = None) -> int:
    """Load the models and serve them; 2 with one line on standard error if it cannot be."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments, os.environ)
        registry = load_models(
            settings.model,
            device=settings.device,
            precision=settings.precision,
            n_threads=settings.threads,
            gpu_memory_mib=settings.gpu_memory_mib,
        )
        app = create_app(settings, registry, n_workers=_n_workers(registry.default))
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


def _n_workers(model: Model) -> int:
    return model.engine.provider.n_workers or model.engine.n_threads


if __name__ == "__main__":
    sys.exit(main())
