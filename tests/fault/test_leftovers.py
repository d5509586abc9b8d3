"""A training process that is killed leaves nothing: twelve kills. ``python -m tests.soak.leftovers`` makes hundreds."""

from __future__ import annotations

import pytest

from tests.soak.leftovers import METHODS, kill_one

KILLS = 4


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_nothing_remains_of_a_killed_trainer(method: str) -> None:
    for seed in range(KILLS):
        remains = kill_one(seed, method)
        assert not remains.found, f"seed {seed}, killed at {remains.line}"
