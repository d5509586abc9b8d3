"""Pages and commands run in interpreters that have imported torch already: see ``tests.warm``."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _warm(warm_scripts: None) -> None:
    """Made before the first test here, so that the leak guard knows it."""
