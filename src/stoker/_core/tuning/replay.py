"""The replay oracle: what a setting would do with batches that take what they were measured to take.

Not a formula: batches are dealt to workers that share CPUs, and handed over in order, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker._core.tuning.work import Demand, Work


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run that did not happen."""

    interval_ns: float
    """Between two batches that the training loop takes."""
    stall: float
    """Share of the wall time that it waits for data."""
    busy: float
    """Share of the time that workers are at work."""


def replay(
    work: Work,
    demand: Demand,
    *,
    workers: int,
    window: int,
    cpus: float,
    in_order: bool = True,
    split: bool = False,
    threads: int = 1,
    batches: int = 512,
) -> Replayed:
    """What so many workers with such a window would do on ``cpus`` CPUs, the training process's included. 0: it makes all itself."""
    raise NotImplementedError
