"""What the race makes of blocks: a point for every setting."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._runtime.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio or a time, with the interval that holds it with 90 % probability."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """A setting that was measured, over all its undisturbed blocks."""

    setting: Setting
    interval_ns: Interval
    """Between two batches."""
    ratio: Interval
    """To the baseline's, round by round: 0.8 means a fifth less time."""
    stall: float
    cpu_ns: float
    """Of the training process and all workers, per batch."""
    memory_bytes: int | None
    blocks: int
    disturbed: int = 0
    """Blocks that were set aside."""
    predicted_ns: float | None = None
    """What the replay said before."""
    failure: str = ""
