"""Scripts of these tests start in interpreters that have imported torch already: see ``tests.warm``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import warm


@pytest.fixture(scope="session", autouse=True)
def warm_scripts() -> Iterator[None]:
    """One incubator per test process; made before the first test here, so that the leak guard knows it."""
    warm.incubator = warm.Incubator()
    yield
    warm.incubator.close()
    warm.incubator = None
