"""From rounds to figures: ratios are taken inside a round, where both sides saw the same machine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum

from benchmarks.entries import Figure, Metric
from benchmarks.measure import Measurement
from benchmarks.rounds import Heat


class Verdict(Enum):
    """How a required figure stands."""

    MET = "met"
    MISSED = "MISSED"
    CRASHED = "CRASHED"
    DIFFERENT = "DIFFERENT"
    """The two sides delivered different batches: a ratio would compare two different jobs."""


@dataclass(frozen=True)
class Summary:
    """A median with its spread over the rounds."""

    median: float
    low: float
    high: float
    quartiles: tuple[float, float]
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: list[float]) -> Summary:
        """Summarise at least one value; the spread of one value is the value itself."""
        if len(values) > 1:
            lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
        else:
            lower = upper = values[0]
        return cls(statistics.median(values), min(values), max(values), (lower, upper), tuple(values))

    def straddles(self, bound: float) -> bool:
        """Whether some rounds lie on either side of ``bound``: the verdict is then not a certain one."""
        return self.low < bound < self.high


def wall_us(measurement: Measurement) -> float:
    """Wall time per batch."""
    return measurement.wall_us


def cpu_us(measurement: Measurement) -> float:
    """CPU time of the parent process per batch."""
    return measurement.cpu_us


def ratios(heats: list[Heat], metric: Metric, workers: int) -> list[float]:
    """Return one value per round for the metric of a figure."""
    if metric.fact:
        # A case that cannot run here has no such fact.
        return [heat.right.facts[metric.fact] for heat in heats if metric.fact in heat.right.facts]
    if metric is Metric.EFFICIENCY:
        return [efficiency(heat.right, heat, workers) for heat in heats]
    of = cpu_us if metric is Metric.CPU else wall_us
    # A parent that only sleeps may show no CPU time at all on a coarse clock.
    return [of(heat.left) / max(of(heat.right), 1e-3) for heat in heats]


def efficiency(loader: Measurement, heat: Heat, workers: int) -> float:
    """Return the loader's rate over what its workers could do on the cores that were free meanwhile.

    The ceiling is ``min(workers, free cores)`` times the rate of one inline process on a core of its own. The
    parent only waits, so it is not given a core; cores that other programs used meanwhile are taken off. The
    At least one core counts as free: below that the correction would flatter more than it repairs. The
    inline process computes without a pause: its CPU time is its wall time with the others' share taken off.
    """
    assert heat.inline is not None
    free = max(1.0, loader.cores - loader.foreign_cores)
    return heat.inline.cpu_us / loader.wall_us / min(float(workers), free)


def plain_efficiency(loader: Measurement, heat: Heat, workers: int) -> float:
    """The same with every core counted as free: the strict reading, fair only on a quiet machine."""
    assert heat.inline is not None
    return heat.inline.wall_us / loader.wall_us / min(workers, loader.cores)


def share_of_together(loader: Measurement, heat: Heat) -> float:
    """Return the loader's rate over that of inline processes side by side, which share caches too."""
    return (1 / loader.wall_us) / sum(1 / each.wall_us for each in heat.together)


def verdict(figure: Figure, summary: Summary, same_batches: bool) -> Verdict:
    """Judge one figure by its median."""
    if not same_batches:
        return Verdict.DIFFERENT
    return Verdict.MET if figure.met(summary.median) else Verdict.MISSED
