"""How a worker's time at work divides: on a CPU, ready and without one, or off it. From the kernel's account of its thread.

``/proc/thread-self/schedstat`` has the time on a CPU and the time in the run queue; reading it again through one descriptor takes
1.3 µs. So it is read once a millisecond at most: after every slow task, or after several quick ones together.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from stoker._worker.status import BUSY_NS, CPU_NS, RUNQ_NS, TASKS

READING_NS = 1_000_000
"""The least time between two readings."""


class Reading(NamedTuple):
    """Since the reading before: on a CPU, in the run queue, and how long the worker was at work meanwhile. Zeros: not read."""

    cpu_ns: int = 0
    runq_ns: int = 0
    metered_ns: int = 0


NO_READING = Reading()


class Meter:
    """Of the thread that makes it, and used on that thread only. ``row`` is its worker's on the status page, for sums."""

    def __init__(self, row: Any = None) -> None:
        self._row = row
        self._fd = _open()
        self._cpu_ns = self._runq_ns = 0
        self._at_ns = 0
        self._busy_ns = 0
        self._slow = True
        self._total_cpu_ns = self._total_runq_ns = self._total_busy_ns = self._tasks = 0

    def began(self, now_ns: int) -> None:
        """A task begins. After a slow one the account is read here too: what lies between tasks is nobody's."""
        if self._slow and self._fd >= 0:
            self._cpu_ns, self._runq_ns = self._read()
            self._at_ns = now_ns
            self._busy_ns = 0

    def ended(self, began_ns: int, now_ns: int) -> Reading:
        """The task ended."""
        self._busy_ns += now_ns - began_ns
        self._tasks += 1
        if now_ns - self._at_ns < READING_NS or self._fd < 0:
            self._slow = False
            return NO_READING
        self._slow = now_ns - began_ns >= READING_NS
        cpu_ns, runq_ns = self._read()
        reading = Reading(cpu_ns - self._cpu_ns, runq_ns - self._runq_ns, self._busy_ns)
        self._cpu_ns, self._runq_ns, self._at_ns, self._busy_ns = cpu_ns, runq_ns, now_ns, 0
        self._total_cpu_ns += reading.cpu_ns
        self._total_runq_ns += reading.runq_ns
        self._total_busy_ns += reading.metered_ns
        row = self._row
        if row is not None:
            row[CPU_NS] = self._total_cpu_ns
            row[RUNQ_NS] = self._total_runq_ns
            row[BUSY_NS] = self._total_busy_ns
            row[TASKS] = self._tasks
        return reading

    def close(self) -> None:
        """Give the descriptor back. Worker processes do not: it goes with them."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> tuple[int, int]:
        try:
            cpu_ns, runq_ns, _ = os.pread(self._fd, 96, 0).split()
            return int(cpu_ns), int(runq_ns)
        except (
            OSError,
            ValueError,
        ):  # closed by the dataset, or another kernel's words: there are no readings then
            self._fd = -1
            return self._cpu_ns, self._runq_ns


def _open() -> int:
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
