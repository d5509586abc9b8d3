"""How much of the machine other programs took while a round ran: a disturbed round should look disturbed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil


def cores() -> int:
    """Return the cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class LoadMark:
    """One reading of the machine's and our own CPU clocks; subtract two of them."""

    at_s: float
    machine_s: float
    own_s: float

    @classmethod
    def now(cls) -> LoadMark:
        """Read the clocks. Takes a millisecond or two, so never call it inside a timed stretch."""
        return cls(time.perf_counter(), _machine_busy_s(), _own_tree_s())

    def foreign_cores(self, later: LoadMark) -> float:
        """Return how many cores were busy for others, or stolen by the host, between the two readings."""
        span_s = max(later.at_s - self.at_s, 1e-9)
        busy_s = later.machine_s - self.machine_s
        own_s = later.own_s - self.own_s
        # The machine counts in ticks of 10 ms, so a short quiet round can come out slightly negative.
        return max(0.0, (busy_s - own_s) / span_s)


def _machine_busy_s() -> float:
    times = psutil.cpu_times()
    steal = float(getattr(times, "steal", 0.0))
    return float(
        times.user + times.system + steal + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    ) + float(getattr(times, "nice", 0.0))


def _own_tree_s() -> float:
    """CPU of this process, of the children it has waited for and of the living ones."""
    me = psutil.Process()
    own = me.cpu_times()
    total = float(own.user + own.system + own.children_user + own.children_system)
    for child in me.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += float(times.user + times.system)
    return total
