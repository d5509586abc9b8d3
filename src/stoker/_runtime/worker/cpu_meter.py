"""Measures how much of a worker's time was spent on a CPU, in the run queue, or off the CPU.

The kernel keeps both figures per thread in ``/proc/thread-self/schedstat``. Reading that file through an open descriptor takes
1.3 µs on an idle machine and 6 µs on a busy one. It is read every two milliseconds at most: after each slow task, or once for
several quick tasks. While tasks are very quick, it is read every 16 ms.

The kernel brings the first figure up to date at its ticks, up to 10 ms apart, when threads change, and when the thread asks for its
own clock. Without that question, a thread that computes alone has 0 ms in some tasks, and in others more than they took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker._runtime.protocol.status_page import BUSY_NS, CPU_NS, RUNQ_NS, TASKS

READING_NS = 2_000_000
"""The least time between two readings."""

_QUICK_READING_NS = 16_000_000
_QUICK_TASKS = 8
"""After so many tasks since the last reading, the next one waits longer, unless a slow task comes."""

_NEVER = 1 << 62
_bring_up_to_date = time.thread_time_ns


class CpuReading(NamedTuple):
    """Time since the last reading: on a CPU, in the run queue, and busy with tasks. Zeros: not read."""

    cpu_ns: int = 0
    runq_ns: int = 0
    metered_ns: int = 0


NO_READING = CpuReading()


class CpuMeter:
    """Measures the thread that makes it; used on that thread only. Sums go to ``row``, the worker's row of the status page.

    ``helpers`` returns the CPU and run-queue time that other threads spent on its tasks so far.
    """

    def __init__(self, row: Any = None, *, helpers: Callable[[], tuple[int, int]] | None = None) -> None:
        self._row = row
        self._helpers = helpers
        self._gap_ns = READING_NS
        self._read_tasks = 0
        """``tasks`` at the last reading."""
        self._fd = open_account()
        self._cpu_ns = self._runq_ns = 0
        self._sums = [0, 0, 0]
        self.due_ns = 0 if self._fd >= 0 else _NEVER
        self.busy_ns = 0
        self.tasks = 0
        self.slow = self._fd >= 0
        """Whether the last task was slow, so that the next one starts a new account."""

    def began(self, now_ns: int) -> None:
        """Start a new account: a task begins after a slow one, and the time between them belongs to neither."""
        self._cpu_ns, self._runq_ns = self._account()
        self.busy_ns = 0
        if self._fd >= 0:
            self.due_ns = now_ns + self._gap_ns

    def ended(self, began_ns: int, now_ns: int) -> CpuReading:
        """Count a finished task; return a reading if one is due."""
        self.busy_ns += now_ns - began_ns
        self.tasks += 1
        if now_ns < self.due_ns and now_ns - began_ns < READING_NS:
            self.slow = False
            return NO_READING
        return self.read(began_ns, now_ns)

    def read(self, began_ns: int, now_ns: int) -> CpuReading:
        """Return the reading of all tasks since the last one. The last task began at ``began_ns`` and ends at ``now_ns``."""
        self.slow = now_ns - began_ns >= self._gap_ns
        cpu_ns, runq_ns = self._account()
        if self._fd < 0:
            return NO_READING
        quick, self._read_tasks = self.tasks - self._read_tasks >= _QUICK_TASKS, self.tasks
        self.due_ns = now_ns + (_QUICK_READING_NS if quick else self._gap_ns)
        reading = _within(cpu_ns - self._cpu_ns, runq_ns - self._runq_ns, self.busy_ns)
        self._cpu_ns, self._runq_ns, self.busy_ns = cpu_ns, runq_ns, 0
        row, sums = self._row, self._sums
        for place, ns in enumerate(reading):
            sums[place] += ns
        if row is not None:
            row[CPU_NS], row[RUNQ_NS], row[BUSY_NS] = sums
            row[TASKS] = self.tasks
        return reading

    def close(self) -> None:
        """Close the descriptor. A worker process need not: it ends with the process."""
        fd, self._fd = self._fd, -1  # before it is closed: nobody may close that number twice
        if fd >= 0:
            os.close(fd)

    def _account(self) -> tuple[int, int]:
        _bring_up_to_date()
        try:
            cpu, runq, _ = os.pread(self._fd, 96, 0).split()
            cpu_ns, runq_ns = int(cpu), int(runq)
        except (OSError, ValueError):  # closed by the dataset, or another format: no readings from now on
            self._fd, self.due_ns, self.slow = -1, _NEVER, False
            return self._cpu_ns, self._runq_ns
        if self._helpers is not None:
            more_cpu_ns, more_runq_ns = self._helpers()
            return cpu_ns + more_cpu_ns, runq_ns + more_runq_ns
        return cpu_ns, runq_ns


class SingleTaskMeter(CpuMeter):
    """Measures tasks of a thread that does other work between them: a reading covers one task.

    Slow tasks get one each, of quick tasks one every two milliseconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._gap_ns = 0
        self._measures = False

    def began(self, now_ns: int) -> None:
        """Start an account of this task, if one is due."""
        self._measures = now_ns >= self.due_ns
        if self._measures:
            super().began(now_ns)

    def ended(self, began_ns: int, now_ns: int) -> CpuReading:
        """Return a reading if this task has an account."""
        if not self._measures:
            return NO_READING
        reading = super().ended(began_ns, now_ns)
        if self.due_ns != _NEVER and now_ns - began_ns < READING_NS:
            self.due_ns = now_ns + READING_NS
        self.slow = self._fd >= 0
        return reading


def _within(cpu_ns: int, runq_ns: int, busy_ns: int) -> CpuReading:
    """Limit a reading to the busy time. A reading of quick tasks includes the pauses between them."""
    spent_ns = cpu_ns + runq_ns
    if spent_ns > busy_ns:
        cpu_ns = cpu_ns * busy_ns // spent_ns
        runq_ns = busy_ns - cpu_ns
    return CpuReading(cpu_ns, runq_ns, busy_ns)


def read_account(fd: int) -> tuple[int, int]:
    """Return (CPU time, run-queue time) of the calling thread's account so far. Zeros where it cannot be read."""
    _bring_up_to_date()
    try:
        cpu, runq, _ = os.pread(fd, 96, 0).split()
        return int(cpu), int(runq)
    except (OSError, ValueError):
        return 0, 0


def open_account() -> int:
    """Open the kernel's account of this thread; -1 where there is none."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
