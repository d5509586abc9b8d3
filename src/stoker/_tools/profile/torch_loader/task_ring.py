"""Brings each task's measurements from torch's workers to the parent: rows of numbers in unnamed shared memory.

Each worker has its own rows and is the only one that writes them, at the place of its n-th task. Parent and worker both count
the tasks, so nothing more has to be sent. A row is whole before its batch goes into the pipe. Imported by workers: light.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

_ROW = struct.Struct("<13q")
_ROW_WORDS = 16
_SENT = 5
_DONE, _THREADS, _CPU_NS, _INDEX, _ROWS, _HEAD_WORDS = 0, 1, 2, 3, 4, 6
"""Of each worker, before the rows."""


class TaskRow(NamedTuple):
    """One task. ``position``: the number of the worker's task, ``idx``: torch's of the batch. Moments on the monotonic clock; 0
    where they were not measured, as the record has them (STEP_COLUMNS). ``slow_index`` -1: not known.
    """

    position: int
    idx: int
    received_ns: int = 0
    fetched_ns: int = 0
    collated_ns: int = 0
    sent_ns: int = 0
    cpu_ns: int = 0
    runq_ns: int = 0
    metered_ns: int = 0
    slow_row: int = -1
    slow_ns: int = 0
    slow_index: int = -1
    rows: int = 0


class TaskRing:
    """A mapping of the rows, and of a few words for each worker. Made in the parent with ``create``."""

    def __init__(self, fd: int, workers: int, places: int) -> None:
        self.workers = workers
        self.places = places
        self._fd = fd
        self._map = mmap.mmap(fd, _bytes(workers, places))
        self._words = memoryview(self._map).cast("q")
        self._done = self._words[: _HEAD_WORDS * workers : _HEAD_WORDS]

    @classmethod
    def create(cls, workers: int, places: int) -> TaskRing:
        """All zeros, for so many workers and unfinished tasks of each."""
        fd = os.memfd_create("stoker-torch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, _bytes(workers, places))
            return cls(fd, workers, places)
        except BaseException:
            os.close(fd)
            raise

    def settle(self) -> None:
        """All workers have it: the descriptor is not needed any more. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def write(self, worker: int, row: tuple[int, ...]) -> int:
        """Put a row (a TaskRow) at the place of its position. Returns what ``sent`` wants to know."""
        at = self._at(worker, row[0])
        _ROW.pack_into(self._map, at * 8, *row)
        return at

    def sent(self, worker: int, at: int, now_ns: int) -> None:
        """The batch of that row goes out now."""
        self._words[at + _SENT] = now_ns
        self._words[worker * _HEAD_WORDS + _DONE] += 1

    @property
    def done(self) -> int:
        """Batches that all workers have made and sent."""
        return sum(self._done)

    def tell(self, worker: int, threads: int, cpu_ns: int) -> None:
        """How many threads a worker has, and the CPU time that all of them have used for its tasks."""
        at = worker * _HEAD_WORDS
        self._words[at + _THREADS], self._words[at + _CPU_NS] = threads, cpu_ns

    def works_on(self, worker: int, index: int, rows: int) -> None:
        """Which index of the dataset a worker is on; with ``rows`` > 1, the first of a batch of so many. -1: not known."""
        at = worker * _HEAD_WORDS
        self._words[at + _INDEX], self._words[at + _ROWS] = index + 1, rows

    def worked_on(self, worker: int) -> tuple[int, int] | None:
        """Read what ``works_on`` wrote, in the parent; None where no index is known."""
        at = worker * _HEAD_WORDS
        index, rows = self._words[at + _INDEX] - 1, self._words[at + _ROWS]
        return (index, rows) if index >= 0 else None

    def worker_times(self, worker: int) -> tuple[int, int] | None:
        """Read what ``tell`` wrote, in the parent; None before the first time."""
        at = worker * _HEAD_WORDS
        threads, cpu_ns = self._words[at + _THREADS], self._words[at + _CPU_NS]
        return (threads, cpu_ns) if threads else None

    def read(self, worker: int, position: int, idx: int) -> TaskRow | None:
        """The row of that task; None when the worker has not written it."""
        row = TaskRow._make(_ROW.unpack_from(self._map, self._at(worker, position) * 8))
        return row if row.position == position and row.idx == idx else None

    def __reduce__(self) -> Any:
        """To a worker that is being spawned."""
        return _attached, (DupFd(self._fd), self.workers, self.places)

    def __del__(self, _exits: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _exits():  # otherwise names of modules may be None by now
            self.settle()

    def _at(self, worker: int, position: int) -> int:
        return self.workers * _HEAD_WORDS + (worker * self.places + position % self.places) * _ROW_WORDS


def _bytes(workers: int, places: int) -> int:
    return 8 * workers * (_HEAD_WORDS + places * _ROW_WORDS)


def _attached(sent: Any, workers: int, places: int) -> TaskRing:
    ring = TaskRing(sent.detach(), workers, places)
    ring.settle()
    return ring
