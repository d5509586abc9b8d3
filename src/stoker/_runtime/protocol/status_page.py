"""Shows which ticket and row every worker is on; readable while a worker hangs and after it died.

A pool has one small memfd, named so that tools can find it. Row 0 belongs to the parent and says which epoch counts. Row w + 1
belongs to worker w, its only writer. Words have 64 bits and are written one at a time. A reader may see a row between two writes
and must treat it as a hint. Behind the rows, the same file holds the stacks that workers leave (``stacks``).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterable
from typing import Any

WORDS = 32
ROW_BYTES = WORDS * 8
MAX_WORKERS = 4095
VERSION = 1
"""The version of the words and their places."""

# Words of row 0
EPOCH = 0
PARENT_PID = 1
LAYOUT = 2
NOTES = 3
"""Set by any worker that sent a note, cleared by the parent. The only word that several processes write."""

TRIM = 4
"""The number of the request to release caches; 0 when there is none."""

REVISION = 5
"""Announces a change of the dataset and the slot of its payload (``receiver.word_of``); 0 before the first."""

RUN = 6
"""The inode of the loader's run page (``_record.run_page``); 0 where there is none."""

FORMAT = 7
"""The ``VERSION`` of this page, for tools of another version."""

# Words of a worker's row
PID = 0
W_EPOCH = 1
SEQ = 2
ATTEMPT = 3
PART = 4
ROW = 5
PHASE = 6
SINCE_NS = 7
RESIDENT_BYTES = 8
ARMED = 9
"""Set when the worker answers to the signal that asks for its stack. Any other worker would die of that signal."""
PRIVATE_BYTES = 10
"""The worker's private memory after its first batches; growth is measured against it. 0 until it is known."""

INDEX = 11
"""The dataset index of the current row, if rows are slow and it is a number; else NO_INDEX."""
CPU_NS = 12
RUNQ_NS = 13
BUSY_NS = 14
TASKS = 15
"""Sums since the worker's start, over all tasks with readings (``cpu_meter``)."""
THREADS = 16
PROCESS_CPU_NS = 17
"""The number of the worker's threads, and their CPU time since its first task."""

AT_ONCE = 18
"""How many rows fetch threads are fetching; ROW and INDEX are of the oldest. 0 without such threads."""

CACHE = 19
"""The first of the ``CACHE_COUNTS`` words: what sample caches did in this worker since its start. Zeros without a cache. The
parent's row has the sums of workers that are gone.
"""

# Phases
IDLE = 0
WORKING = 1
COLLATING = 2

NO_ROW = -1
"""In the ROW word: no row is being fetched, or it is not known which."""

NO_INDEX = -1
"""In the INDEX word."""

NO_EPOCH = 0
"""In the W_EPOCH word: busy, but not with a batch. Epochs count from 1."""


CACHE_COUNTS = ("hits", "misses", "hit_bytes", "stored_bytes", "saved_ns", "passed")
"""The counts of a cache, in the order of their words."""

_CACHE_END = CACHE + len(CACHE_COUNTS)
_NO_COUNTS = (0,) * len(CACHE_COUNTS)
_MOST_INDEX = 1 << 62


def index_word(index: object) -> int:
    """Return an index as the INDEX word can hold it."""
    return index if type(index) is int and 0 <= index < _MOST_INDEX else NO_INDEX


def begin_task(row: Any, epoch: int, seq: int, attempt: int, part: int, now_ns: int) -> None:
    """Show that a worker begins a task. Called by the writer of its row."""
    row[ROW] = NO_ROW
    row[INDEX] = NO_INDEX
    row[W_EPOCH] = epoch
    row[SEQ] = seq
    row[ATTEMPT] = attempt
    row[PART] = part
    row[SINCE_NS] = now_ns
    row[PHASE] = WORKING


def cache_counts(rows: Iterable[Any]) -> tuple[int, ...]:
    """Sum what caches did over rows of workers, in the order of ``CACHE_COUNTS``."""
    return tuple(map(sum, zip(_NO_COUNTS, *(row[CACHE:_CACHE_END] for row in rows), strict=True)))


class StatusPage:
    """A mapping of the page. The parent makes it with ``create``; workers and tools attach to its descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, ROW_BYTES * (MAX_WORKERS + 1))
        self._view = memoryview(self._map)
        self._words = self._view.cast("q")
        self._rows = 0
        self._last_counts = _NO_COUNTS

    @classmethod
    def create(cls) -> StatusPage:
        """Make a new page, all zeros. Called in the parent."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("stoker-status", os.MFD_CLOEXEC)
        else:
            fd, path = tempfile.mkstemp(prefix="stoker-status-")
            os.unlink(path)
        try:
            os.ftruncate(fd, ROW_BYTES * (MAX_WORKERS + 1))
            page = cls(fd)
            page.control[PARENT_PID] = os.getpid()
            page.control[FORMAT] = VERSION
        except BaseException:
            os.close(fd)
            raise
        return page

    @property
    def control(self) -> memoryview:
        """The parent's row."""
        return self._words[:WORDS]

    def row(self, worker: int) -> memoryview:
        """One worker's row."""
        first = (worker + 1) * WORDS
        return self._words[first : first + WORDS]

    def claim(self, worker: int) -> tuple[int, int, int, int] | None:
        """Return (epoch, seq, attempt, part) of the task that a worker claims; None when it is idle."""
        row = self.row(worker)
        if row[PHASE] == IDLE:
            return None
        return row[W_EPOCH], row[SEQ], row[ATTEMPT], row[PART]

    def clear(self, worker: int) -> None:
        """Clear the row of a dead worker before its successor starts. What its caches did is kept in the parent's row."""
        self._rows = max(self._rows, worker + 1)
        row, control = self.row(worker), self.control
        for word in range(CACHE, _CACHE_END):
            control[word] += row[word]
        for word in range(WORDS):
            row[word] = 0

    def cache_counts(self) -> tuple[int, ...]:
        """Sum what caches did in all workers whose rows were cleared before they started. In the parent, on any thread.

        After ``close``, the sum is that of its end.
        """
        try:
            return cache_counts([self.control, *map(self.row, range(self._rows))])
        except ValueError:  # closed, perhaps by another thread meanwhile
            return self._last_counts

    def close(self) -> None:
        """Close the mapping and the descriptor. Idempotent."""
        if self.fd < 0:
            return
        self._last_counts = self.cache_counts()
        self._words.release()
        self._view.release()
        with contextlib.suppress(BufferError):  # a row is still in use; the mapping ends with it
            self._map.close()
        fd, self.fd = self.fd, -1  # before it is closed: nobody may close that number twice
        os.close(fd)
