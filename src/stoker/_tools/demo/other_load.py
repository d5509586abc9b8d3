"""Measures how much of the CPUs other programs used while the demo ran.

Others are the machine's other processes, and, where it is a virtual one, the host's other guests: what the kernel calls stolen.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

from stoker._record.readings.machine import CounterReader


class OtherLoad:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._dials = CounterReader()
        self._taken_ns = self._read_ns()
        self._own_s = _own_s()
        self._began = time.monotonic()

    def share(self) -> float | None:
        """Return others' share of the machine's CPU time since then, 0 to 1; None where the kernel does not tell."""
        taken_ns, spent_s = self._read_ns(), time.monotonic() - self._began
        if taken_ns is None or self._taken_ns is None or spent_s <= 0:
            return None
        others_s = (taken_ns - self._taken_ns) / 1e9 - (_own_s() - self._own_s)
        return max(0.0, min(1.0, others_s / spent_s / (os.cpu_count() or 1)))

    def _read_ns(self) -> int | None:
        """What is not idle, by whomever."""
        read = self._dials.read()
        return None if read.busy_cpu_ns is None else read.busy_cpu_ns + (read.steal_ns or 0)


def _own_s() -> float:
    """CPU time of this process and all below it, those that have ended included: under forkserver workers are not our children."""
    times = os.times()
    spent_s = times.user + times.system + times.children_user + times.children_system
    with suppress(psutil.Error):
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                spent_s += sum(each.cpu_times()[:4])  # user, system, and both of its children
    return spent_s
