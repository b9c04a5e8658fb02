"""A server whose model hangs on one text and kills its worker on another: `python -m` this."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from service.app import create_app
from service.logs import start_logging
from service.models import Model, Work, load_model
from service.registry import Registry
from service.server import serve
from service.settings import read_settings

HANG, DIE = "hang", "die"


class Faulty(Model):
    """A model with two texts that it does not survive."""

    def run(self, graph: str, payloads: Sequence[Work]) -> Any:
        texts = [self.tokenizer.encode(text).ids for text in (HANG, DIE)]
        ids = [list(payload.ids) for payload in payloads]
        if self.tokenizer.wrap(texts[0]) in ids:
            time.sleep(3600)
        if self.tokenizer.wrap(texts[1]) in ids:
            raise SystemExit
        return super().run(graph, payloads)


def main() -> int:
    """As `maskwright-serve`."""
    settings = read_settings(sys.argv[1:], os.environ)
    loaded = load_model(settings.model, device="cpu")
    model = Faulty(loaded.artefact, loaded.engine.provider)
    app = create_app(settings, Registry([model]), n_workers=2)
    log = start_logging(level="info", style="json")
    try:
        return serve(app, settings, greeting="faulty")
    finally:
        log.close()


if __name__ == "__main__":
    sys.exit(main())
