"""Under which circumstances something was found out: what did not pay then may be tried again when they are others."""

from __future__ import annotations

from typing import NamedTuple

from stoker._runtime.autoscale.types import Observation

DEMAND = 0.2
"""A step that takes longer or shorter by this share of the whole interval is another demand."""

MAKING = 0.5
"""Batches that take half as long again, or less by a third, are another work."""

FOREIGN_CPUS = 0.5
FOREIGN_SHARE = 0.15
"""Neighbours that take this much more or less, in CPUs and as a share of all, are another load."""


class Conditions(NamedTuple):
    """``making_ns`` has the run queue in it and so depends on how many workers there were."""

    interval_ns: float
    step_ns: float
    making_ns: float
    foreign_cpus: float | None
    workers: int

    @classmethod
    def of(cls, window: Observation) -> Conditions:
        """As a window shows them."""
        making_ns = window.making_ns + window.runq_ns
        return cls(window.interval_ns, window.step_ns, making_ns, window.foreign_cpus, window.workers)

    def change(self, later: Conditions, cpus: float, *, factor: float = 1.0) -> str:
        """What is noticeably different, in words; "" if nothing is. ``factor`` is how much more it takes to be noticed."""
        moved_ns = abs(later.step_ns - self.step_ns)
        if moved_ns > factor * DEMAND * max(1.0, min(self.interval_ns, later.interval_ns)):
            return f"a step took {_ms(self.step_ns)} and takes {_ms(later.step_ns)}"
        if self.load_moved(later, cpus, factor=factor):
            return f"others kept {self.foreign_cpus:.1f} CPUs busy, now {later.foreign_cpus:.1f}"
        if self.workers == later.workers and self.making_ns > 0 and later.making_ns > 0:
            ratio = later.making_ns / self.making_ns
            if max(ratio, 1 / ratio) > 1 + factor * MAKING:
                return f"a batch took {_ms(self.making_ns)} to make and takes {_ms(later.making_ns)}"
        return ""

    def load_moved(self, later: Conditions, cpus: float, *, factor: float = 1.0) -> bool:
        """Whether the neighbours' load is another one; not known is no difference."""
        if self.foreign_cpus is None or later.foreign_cpus is None:
            return False
        least = max(FOREIGN_CPUS, FOREIGN_SHARE * cpus)
        return abs(later.foreign_cpus - self.foreign_cpus) > factor * least


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"
