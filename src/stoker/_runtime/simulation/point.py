"""A point: the measurements of one setting in a race."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._host.secrets import masked
from stoker._runtime.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio or a time, with an interval that contains it with 90 % probability."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """A measured setting, over all its undisturbed blocks."""

    setting: Setting
    interval_ns: Interval
    """The time between two batches."""
    ratio: Interval
    """The ratio to the baseline's time, round by round: 0.8 means a fifth less time."""
    stall: float
    cpu_ns: float
    """CPU time per batch, of the training process and all workers."""
    memory_bytes: int | None
    blocks: int
    disturbed: int = 0
    """Blocks that were set aside because other programs disturbed them."""
    predicted_ns: float | None = None
    """The replay's prediction."""
    failure: str = ""
    """Why it could not be measured, without the secrets that an error's text may hold."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "failure", masked(self.failure))
