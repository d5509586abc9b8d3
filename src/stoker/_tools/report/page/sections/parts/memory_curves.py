"""Turns a record's memory readings into curves, of each process and of all together. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from stoker._record.readings.memory_curve import MemoryReading, readings
from stoker._record.schema import LoaderRecord

PARENT = -1
_MOST_MOMENTS = 120
_LEAST_FOR_TREND = 4
_STILL = 0.25
"""A process that made more than this of its growth in the last third still grows."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Readings of one worker, or of the training process, by time: of the process that was there longest."""

    worker: int
    readings: tuple[MemoryReading, ...]
    every: tuple[MemoryReading, ...]
    """Those of processes before and after it too, which had the same number."""

    @property
    def first(self) -> MemoryReading:
        return self.readings[0]

    @property
    def last(self) -> MemoryReading:
        return self.readings[-1]

    @property
    def count(self) -> int:
        return len(self.readings)

    @property
    def seconds(self) -> float:
        """Between its first and its last reading."""
        return (self.last.at_ns - self.first.at_ns) / 1e9

    @property
    def growth_bytes(self) -> int:
        """What it has for itself, since its first reading."""
        return self.last.private_bytes - self.first.private_bytes

    @property
    def still_grows(self) -> bool | None:
        """Whether it did so to the end; None: there are too few readings to tell, or it does not grow."""
        if self.count < _LEAST_FOR_TREND or self.growth_bytes <= 0:
            return None
        late_ns = self.last.at_ns - (self.last.at_ns - self.first.at_ns) // 3
        before = [each for each in self.readings if each.at_ns <= late_ns][-1]
        return self.last.private_bytes - before.private_bytes > _STILL * self.growth_bytes


@dataclass(frozen=True, slots=True)
class MemoryMoment:
    """All processes together: what was read last of each. ``private`` and ``shared`` are the workers'."""

    at_s: float
    parent_bytes: int
    private_bytes: int
    shared_bytes: int
    workers: tuple[MemoryReading, ...]


@dataclass(frozen=True, slots=True)
class LoaderMemory:
    """All of one loader."""

    processes: tuple[ProcessMemory, ...]
    together: tuple[MemoryMoment, ...]

    @property
    def moments(self) -> int:
        return len(self.together)

    @property
    def most_grown(self) -> ProcessMemory | None:
        """Return the worker that has grown most; the training process where there is none."""
        workers = [each for each in self.processes if each.worker != PARENT and each.count > 1]
        return max(
            workers or [each for each in self.processes if each.count > 1],
            key=lambda each: each.growth_bytes,
            default=None,
        )


def memory_of(loader: LoaderRecord) -> LoaderMemory:
    """Return the memory of a loader; empty for a record without readings."""
    by_worker: dict[int, list[MemoryReading]] = {}
    for each in sorted(readings(loader.memory)):
        if each.worker >= PARENT:
            by_worker.setdefault(each.worker, []).append(each)
    processes = tuple(
        ProcessMemory(worker, _longest(found), tuple(found))
        for worker, found in sorted(by_worker.items(), key=lambda item: (item[0] == PARENT, item[0]))
    )
    return LoaderMemory(processes, tuple(_together(by_worker, _began(loader))))


def _began(loader: LoaderRecord) -> dict[int, int]:
    """By worker, when its first batch was begun, where ``auto`` changed their number: it may not have been there before."""
    found: dict[int, int] = {}
    if any(each.kind == "tuning" for each in loader.events):
        columns = (loader.steps.get(name, []) for name in ("worker", "received_ns"))
        for worker, received_ns in zip(*columns, strict=False):
            if type(worker) is not int or type(received_ns) is not int:
                return {}  # damaged: the lanes say so
            found[worker] = min(found.get(worker, received_ns), received_ns)
    return found


def _longest(found: Sequence[MemoryReading]) -> tuple[MemoryReading, ...]:
    """A worker may be another process in every epoch: growth is that of one."""
    by_pid: dict[int, list[MemoryReading]] = {}
    for each in found:
        by_pid.setdefault(each.pid, []).append(each)
    ends = {pid: (its[-1].at_ns - its[0].at_ns, its[-1].at_ns) for pid, its in by_pid.items()}
    return tuple(by_pid[max(ends, key=ends.__getitem__)])


def _together(by_worker: dict[int, list[MemoryReading]], began: dict[int, int]) -> list[MemoryMoment]:
    moments = sorted({each.at_ns for found in by_worker.values() for each in found})
    if len(moments) > _MOST_MOMENTS:
        first, last = moments[0], moments[-1]
        moments = [first + (last - first) * place // (_MOST_MOMENTS - 1) for place in range(_MOST_MOMENTS)]
    times = {worker: [each.at_ns for each in found] for worker, found in by_worker.items()}
    together = []
    for at_ns in moments:
        # Who was not read yet was there all the same, as when it was first read; unless it is known to have come later.
        now = {
            worker: found[max(0, bisect_right(times[worker], at_ns) - 1)]
            for worker, found in by_worker.items()
            if at_ns >= min(began.get(worker, 0), found[0].at_ns)
        }
        parent = now.pop(PARENT, None)
        private = sum(each.private_bytes for each in now.values())
        shared = sum(max(0, each.pss_bytes - each.private_bytes) for each in now.values())
        together.append(
            MemoryMoment(
                at_ns / 1e9, 0 if parent is None else parent.pss_bytes, private, shared, tuple(now.values())
            )
        )
    return together


def process_name(worker: int) -> str:
    """What the process of a worker is called, and the training process."""
    return "training process" if worker == PARENT else f"worker {worker}"
