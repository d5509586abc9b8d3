"""The trial of a change: the reason of a revert names the change that was made."""

from __future__ import annotations

import pytest

from stoker._runtime.autoscale.trial import ActionTrial
from stoker._runtime.autoscale.types import AutoscaleAction, Observation

MS = 1_000_000
BEFORE = Observation(steps=50, wall_ns=500 * MS, wait_ns=100 * MS, workers=2, window=4)
SLOWER = Observation(steps=50, wall_ns=1000 * MS, wait_ns=600 * MS, workers=3, window=8)


@pytest.mark.parametrize(
    ("kind", "change"),
    [("grow", "3 workers"), ("deepen", "a window of 8"), ("split", "batches made in parts")],
)
def test_the_reason_names_the_change_and_both_times(kind: str, change: str) -> None:
    trial = ActionTrial(AutoscaleAction(kind, 3, 8, "because"), BEFORE)
    outcome = trial.judge(SLOWER)
    assert outcome is not None
    assert (outcome.keep, outcome.harmful) == (False, True)
    assert outcome.reason == (
        f"with {change} a step takes 20 ms instead of 10 ms (wait 60.0% instead of 20.0%): back to what it was"
    )
