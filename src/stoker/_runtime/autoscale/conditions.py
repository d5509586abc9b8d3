"""The conditions of an observation: demand, work and load. An action that did not help may be tried again when they change."""

from __future__ import annotations

from typing import NamedTuple

from stoker._runtime.autoscale.types import Observation

DEMAND = 0.2
"""The demand changed if a step takes longer or shorter by this share of the whole interval."""

MAKING = 0.5
"""The work changed if batches take half as long again, or a third less."""

FOREIGN_CPUS = 0.5
FOREIGN_SHARE = 0.15
"""The load changed if other programs use this much more or less, in CPUs and as a share of all CPUs."""


class Conditions(NamedTuple):
    """The conditions at one time. ``making_ns`` includes the run queue, so it depends on the number of workers."""

    interval_ns: float
    step_ns: float
    making_ns: float
    foreign_cpus: float | None
    workers: int

    @classmethod
    def of(cls, observation: Observation) -> Conditions:
        """The conditions of one observation."""
        making_ns = observation.making_ns + observation.runq_ns
        return cls(
            observation.interval_ns,
            observation.step_ns,
            making_ns,
            observation.foreign_cpus,
            observation.workers,
        )

    def change(self, later: Conditions, cpus: float, *, factor: float = 1.0) -> str:
        """The noticeable change in words; "" if there is none. A larger ``factor`` makes a larger change necessary."""
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
        """Whether the load of other programs changed. An unknown load is no change."""
        if self.foreign_cpus is None or later.foreign_cpus is None:
            return False
        least = max(FOREIGN_CPUS, FOREIGN_SHARE * cpus)
        return abs(later.foreign_cpus - self.foreign_cpus) > factor * least


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"
