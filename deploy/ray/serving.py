"""Maskwright on Ray Serve: each replica is an actor with the whole service and its own engine.

    cd deploy/ray && MASKWRIGHT_MODEL=/models/mine serve run serving:app

Settings are the service's MASKWRIGHT_* variables, the same on every machine. REPLICAS is
how many there are, GPUS how many each has. Batches and refusals are the service's own.
"""

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would call its makers

from ray import serve
from starlette.types import ASGIApp

OPEN = 4096  # requests at one replica: it fills its own batches, and refuses what is too much


def service() -> ASGIApp:
    """The service, made where the replica runs."""
    from service.app import create_app
    from service.registry import models_of
    from service.settings import read_settings

    settings = read_settings([], os.environ)
    registry = models_of(settings)
    return create_app(settings, registry, n_workers=registry.default.engine.n_workers)


@serve.deployment(
    name="maskwright",
    num_replicas=int(os.environ.get("REPLICAS", "1")),
    max_ongoing_requests=OPEN,
    ray_actor_options={"num_gpus": float(os.environ.get("GPUS", "0"))},
)
@serve.ingress(service)
class Maskwright:
    """A replica."""


app = Maskwright.bind()
