"""Random scenarios of workers that die, stop and misbehave: see ``tests.soak.workers``."""

from __future__ import annotations

from tests.soak.account import Account
from tests.soak.workers.play import play as play_scenario
from tests.soak.workers.scenario import draw


def play(seed: int) -> Account:
    """Play the scenario of this seed."""
    return play_scenario(draw(seed))
