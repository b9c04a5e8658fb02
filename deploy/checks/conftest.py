"""What the checks share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for logs and data."""
    return tmp_path_factory.mktemp("deploy")
