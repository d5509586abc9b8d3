"""The resources used in a span of time: CPU of the training process and its workers, their run queues, and other programs.

Readings are taken before and after, never in between: one worker costs 30 µs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stoker._record.causes.contention import foreign_cpus
from stoker._record.readings.machine import CounterReader, Counters

_SCHED_CLOCK = 2
"""The kernel's number of the clock that counts all threads of a process, ended ones included."""


@dataclass(frozen=True, slots=True)
class UsageReading:
    """Counters at one moment. ``runq_ns`` is the workers', or the loop's own if there are no workers."""

    counters: Counters
    workers_cpu_ns: dict[int, int]
    runq_ns: dict[str, int]


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """The usage between two readings. None: the kernel does not report it."""

    wall_ns: int
    parent_cpu_ns: int
    workers_cpu_ns: int
    runq_share: float | None
    foreign_cpus: float | None
    pressure: float | None


class UsageMeter:
    """Takes readings, on the thread that iterates."""

    def __init__(self) -> None:
        self._counters = CounterReader()

    def read(self, pids: Iterable[int], *, threads: bool = False) -> UsageReading:
        """Read all counters. ``pids`` are the workers'. With ``threads`` the workers are threads of this process."""
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
    """The usage between two readings. A new worker counts from its start; a worker that ended is left out."""
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
    """CPU time of a process and all its threads; None if it is gone or the system does not report it."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK)
    except (OSError, AttributeError, OverflowError):
        return None


def _queued(pid: int, only: int | None = None) -> dict[str, int]:
    """By thread: the time in which it was ready and had no CPU. Ended threads are not included."""
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
