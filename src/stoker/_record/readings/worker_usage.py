"""Tracks a loader's workers as processes: their memory and their CPU use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from stoker._host.process_memory import footprint, resident_bytes
from stoker._record.readings.lock_wait import waits_for_lock
from stoker._record.readings.memory_curve import MemoryCurve, MemoryReading
from stoker._record.schema import WorkerRecord
from stoker._record.totals import RunningTotals

_clock = time.monotonic_ns
_cpu_clock = time.thread_time_ns

PARENT = -1
"""The training process, in the place of a worker's number."""

_FIRST_NS = 400_000_000
"""From when on processes are weighed."""

_LOOK_NS, _LAST_NS = 5_000_000, 100_000_000
"""After this a look leaves those that are missing to the next one. A process takes 5 to 15 ms, and a forked worker of torch's up to
60, for which the training loop waits: so it is one at a time. Those that are about to go are weighed together."""

_REST, _LAST_REST = 100, 25
"""After a reading, wait 100× its CPU cost, so that sampling stays under 1 %. Workers that are about to end may be read sooner."""

_WAITED_REST = 20
"""And so many times as long as it took, which is more where this thread had to wait for a CPU."""

_GLANCE_NS = 50_000_000
"""Between two looks at where workers sleep."""

_LARGE_BYTES = 4 << 30
"""A training process that occupies more is not weighed: it takes 10 ms for every GB."""


class Size(NamedTuple):
    """What a worker occupies; None where the kernel does not tell. ``baseline_bytes``: private after its first batches."""

    worker: int
    pid: int
    pss_bytes: int | None
    private_bytes: int | None
    growth_bytes: int | None
    threads: int | None = None
    cpu_ns: int | None = None
    baseline_bytes: int | None = None


class WorkerUsage:
    """Remembers the memory and CPU use of workers for a recorder, under its lock. Any thread may call ``by_pid``."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        """Pids by worker, for loaders that no executor reports."""
        self.memory = MemoryCurve()
        self._present: dict[int, tuple[int, int | None]] = {}
        """By worker, of those that were there when they were last counted: pid and baseline."""
        self._baselines: dict[int, int] = {}
        self._cpu_ns: dict[int, tuple[int, int, int]] = {}
        """By worker: its pid, what processes before it used of the CPU, and what it has used itself."""
        self._due_ns, self._last_due_ns = _clock() + _FIRST_NS, 0
        self._glance_due_ns = 0
        self._turn = 0
        """Whose turn it is to be weighed."""

    def tally(self, sizes: Iterable[Size], running_totals: RunningTotals) -> None:
        """Take over which workers are there now, with their threads and CPU time."""
        self._present.clear()
        for size in sizes:
            self._present[size.worker] = size.pid, size.baseline_bytes
            one = running_totals.worker(size.worker)
            one.pid = size.pid
            one.threads = size.threads
            if size.cpu_ns is not None:
                pid, ended_ns, cpu_ns = self._cpu_ns.get(size.worker, (size.pid, 0, 0))
                if pid != size.pid:  # another process took its place
                    ended_ns += cpu_ns
                self._cpu_ns[size.worker] = size.pid, ended_ns, size.cpu_ns
                one.process_cpu_ns = ended_ns + size.cpu_ns

    def look(self, running_totals: RunningTotals, *, last: bool = False) -> int:
        """Read the memory of the training process and its workers, if it is due. Those that time does not allow come next time.

        ``last``: the workers are about to end, so begin with the first. Returns how many nanoseconds it took.
        """
        began_ns, cpu_ns = _clock(), _cpu_clock()
        if began_ns < (self._last_due_ns if last else self._due_ns):
            return 0
        workers = {worker: (pid, None) for worker, pid in self.pids.items()} | self._present
        order = [*sorted(workers.items()), (PARENT, (os.getpid(), None))]
        place = 0 if last else self._turn % len(order)
        found = []
        for worker, (pid, baseline) in order[place:] + order[:place]:
            size = self._weigh(worker, pid, baseline)
            if size is not None:
                found.append(size)
            place += 1
            if _clock() >= began_ns + (_LAST_NS if last else _LOOK_NS):
                break
        self._turn = place
        self.note(found, running_totals)
        ended_ns, used_ns = _clock(), _cpu_clock() - cpu_ns
        self._due_ns = ended_ns + max(_REST * used_ns, _WAITED_REST * (ended_ns - began_ns))
        self._last_due_ns = ended_ns + _LAST_REST * used_ns
        return ended_ns - began_ns

    def glance(self, running_totals: RunningTotals) -> None:
        """Look where the workers sleep: 10 µs each."""
        now_ns = _clock()
        if now_ns < self._glance_due_ns:
            return
        pids = {worker: pid for worker, (pid, _) in self._present.items()} | self.pids
        for worker, pid in pids.items():
            locked = waits_for_lock(pid) if worker >= 0 else None
            if locked is not None:
                one = running_totals.worker(worker)
                one.looks += 1
                one.locked_looks += locked
        self._glance_due_ns = _clock() + max(_GLANCE_NS, _REST * (_clock() - now_ns))

    def note(self, sizes: Iterable[Size], running_totals: RunningTotals) -> None:
        """Add the processes' present memory to the workers' records and to the curve."""
        now_ns = _clock()
        readings = []
        for size in sizes:
            if size.worker != PARENT:
                one = running_totals.worker(size.worker)
                one.pid, one.pss_bytes, one.private_bytes = size.pid, size.pss_bytes, size.private_bytes
                one.private_growth_bytes = size.growth_bytes
            if size.pss_bytes is not None and size.private_bytes is not None:
                readings.append(
                    MemoryReading(now_ns, size.worker, size.pid, size.pss_bytes, size.private_bytes)
                )
        self.memory.add(readings)

    def by_pid(self) -> Iterable[Size]:
        """Return what each process occupies, read one after another."""
        for worker, pid in list(self.pids.items()):
            size = self._weigh(worker, pid, None)
            if size is not None:
                yield size

    def _weigh(self, worker: int, pid: int, baseline: int | None) -> Size | None:
        """Return None if the process is gone or too large, or the kernel does not tell.

        Growth counts from ``baseline``; where that is not known, from the first reading.
        """
        if worker == PARENT and (resident_bytes() or 0) > _LARGE_BYTES:
            return None
        found = footprint(pid)
        if found is None:
            return None
        if baseline is None:
            baseline = self._baselines.setdefault(pid, found.private_bytes)
        growth = max(0, found.private_bytes - baseline)
        return Size(worker, pid, found.pss_bytes, found.private_bytes, growth)


def used_ns(worker: WorkerRecord) -> int:
    """Return the CPU time that a worker used at work; 0 for the parent, whose time counts with it."""
    return max(worker.cpu_ns, worker.process_cpu_ns or 0) if worker.worker >= 0 else 0
