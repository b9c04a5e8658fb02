"""The command `maskwright-serve`."""

import logging
import os
import sys

from export.artefact import InvalidArtefact
from service.app import create_app
from service.providers import ProviderUnavailable
from service.registry import load_models
from service.server import serve
from service.settings import read_settings


def main(arguments: list[str] | None = None) -> int:
    """Load the models and serve them; 2 with one line on standard error if it cannot be."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments, os.environ)
        logging.basicConfig(
            level=settings.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        # uvicorn's own "started", "listening"; the greeting says it in one line.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        registry = load_models(settings.model, device=settings.device)
    except (ValueError, InvalidArtefact, ProviderUnavailable) as error:
        print(f"maskwright-serve: {error}", file=sys.stderr)  # noqa: T201 the command's output
        return 2
    except KeyboardInterrupt:
        return 130
    model = registry.default
    provider = model.engine.provider
    cores = settings.threads or len(os.sched_getaffinity(0))
    app = create_app(settings, registry, n_workers=provider.n_workers or cores)
    variant = model.engine.variant("encode")
    greeting = (
        f"maskwright serves {', '.join(registry.names)} ({provider.name}, {variant.precision})"
    )
    return serve(app, settings, greeting=greeting)


if __name__ == "__main__":
    sys.exit(main())
