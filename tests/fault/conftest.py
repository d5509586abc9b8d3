"""Scripts of these tests start in interpreters that have imported torch already: see ``tests.warm``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.testing import Gate


@pytest.fixture(scope="session", autouse=True)
def _warm(warm_scripts: None) -> None:
    """Made before the first test here, so that the leak guard knows it."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Something to wait at, open when the test is over."""
    gate = Gate(str(tmp_path))
    yield gate
    gate.close()
