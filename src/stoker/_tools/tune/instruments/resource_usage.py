"""What a stretch of time cost: CPU of the training process and of its workers, their time in the run queue, and who else ran.

Readings are taken before and after, never in between: a worker costs 30 µs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stoker._record.causes.contention import foreign_cpus
from stoker._record.machine import CounterReader, Counters

_SCHED_CLOCK = 2
"""As the kernel numbers clocks: the one that counts all threads of a process, those that have ended too."""


@dataclass(frozen=True, slots=True)
class UsageReading:
    """Counters at one moment. ``runq_ns`` is the workers', or where there are none the loop's own."""

    counters: Counters
    workers_cpu_ns: dict[int, int]
    runq_ns: dict[str, int]


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Between two readings. None: the kernel does not tell."""

    wall_ns: int
    parent_cpu_ns: int
    workers_cpu_ns: int
    runq_share: float | None
    foreign_cpus: float | None
    pressure: float | None


class UsageMeter:
    """Takes readings. Made and used on the thread that iterates."""

    def __init__(self) -> None:
        self._counters = CounterReader()

    def read(self, pids: Iterable[int], *, threads: bool = False) -> UsageReading:
        """Now. ``pids`` are the workers'; with ``threads`` the workers are threads of this process."""
        cpu_ns, runq_ns = {}, {}
        for pid in pids:
            used = process_cpu_ns(pid)
            if used is not None:
                cpu_ns[pid] = used
            runq_ns.update(_queued(pid))
        if threads or not cpu_ns:
            runq_ns.update(_queued(os.getpid(), only=None if threads else os.getpid()))
        return UsageReading(self._counters.read(), cpu_ns, runq_ns)


def between(before: UsageReading, after: UsageReading, workers: int) -> ResourceUsage:
    """What it cost. A worker that came in between counts from its beginning, one that went is left out."""
    workers_ns = sum(used - before.workers_cpu_ns.get(pid, 0) for pid, used in after.workers_cpu_ns.items())
    load = after.counters.since(before.counters, workers_ns)
    wall_ns = max(1, load.wall_ns)
    queued = [after.runq_ns[each] - before.runq_ns.get(each, 0) for each in after.runq_ns]
    return ResourceUsage(
        wall_ns=wall_ns,
        parent_cpu_ns=load.parent_cpu_ns or 0,
        workers_cpu_ns=workers_ns,
        runq_share=min(1.0, sum(queued) / (wall_ns * max(1, workers))) if queued else None,
        foreign_cpus=foreign_cpus(load),
        pressure=None if load.pressure_ns is None else min(1.0, load.pressure_ns / wall_ns),
    )


def process_cpu_ns(pid: int) -> int | None:
    """CPU time of a process and all its threads, to the nanosecond; None when it is gone or the system does not tell."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK)
    except (OSError, AttributeError, OverflowError):
        return None


def _queued(pid: int, only: int | None = None) -> dict[str, int]:
    """By thread, how long it was ready and had no CPU since it began. Threads that have ended are not there any more."""
    folder = f"/proc/{pid}/task"
    try:
        threads: Sequence[str] = os.listdir(folder) if only is None else (str(only),)
    except OSError:
        return {}
    found = {}
    for thread in threads:
        try:
            with open(f"{folder}/{thread}/schedstat", "rb") as file:
                found[f"{pid}/{thread}"] = int(file.read().split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return found
