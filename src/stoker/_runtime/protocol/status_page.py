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

WORDS = 32
ROW_BYTES = WORDS * 8
MAX_WORKERS = 4095
VERSION = 1
"""Of the words and their places."""

# Words of row 0
EPOCH = 0
PARENT_PID = 1
LAYOUT = 2
NOTES = 3
"""Set by any worker that sent a note, cleared by the parent: the only word that several processes write."""

TRIM = 4
"""The number of the order to let go of caches; 0 when none is in force."""

REVISION = 5
"""What changed on the dataset, and in which slot that lies (``revision.word_of``); 0 before anything did."""

RUN = 6
"""The inode of the loader's run page (``_metrics.page``); 0 where there is none."""

FORMAT = 7
"""Which words there are (``VERSION``), for tools of another version."""

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
"""Set when the worker answers to the signal that asks for its stack; others would die of it."""
PRIVATE_BYTES = 10
"""What the worker had for itself after its first batches: growth is measured against it. 0 as long as it is not known."""

INDEX = 11
"""The dataset's index of the row in the making, where rows are slow and it is a number; else NO_INDEX."""
CPU_NS = 12
RUNQ_NS = 13
BUSY_NS = 14
TASKS = 15
"""Sums since the worker's start, of all that has readings (``meter``)."""
THREADS = 16
PROCESS_CPU_NS = 17
"""How many threads the worker has, and the CPU time of all of them since its first task."""

AT_ONCE = 18
"""How many rows are in the making, where a worker has hands; ROW and INDEX are of the oldest. 0 where it has none."""

# Phases
IDLE = 0
WORKING = 1
COLLATING = 2

NO_ROW = -1
"""In the ROW word: not fetching a row, or nobody can say which."""

NO_INDEX = -1
"""In the INDEX word."""

NO_EPOCH = 0
"""In the W_EPOCH word: at work, but not on a batch. Epochs are counted from 1."""


_MOST_INDEX = 1 << 62


def index_word(index: object) -> int:
    """An index as the INDEX word can hold it."""
    return index if type(index) is int and 0 <= index < _MOST_INDEX else NO_INDEX


class StatusPage:
    """A mapping of the page. The parent makes it with ``create``; workers and tools attach to the descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, ROW_BYTES * (MAX_WORKERS + 1))
        self._view = memoryview(self._map)
        self._words = self._view.cast("q")

    @classmethod
    def create(cls) -> StatusPage:
        """A new page, all zeros. Called in the parent."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("stoker-status", os.MFD_CLOEXEC)
        else:
            fd, path = tempfile.mkstemp(prefix="stoker-status-")
            os.unlink(path)
        try:
            os.ftruncate(fd, ROW_BYTES * (MAX_WORKERS + 1))
            page = cls(fd)
        except BaseException:
            os.close(fd)
            raise
        page.control[PARENT_PID] = os.getpid()
        page.control[FORMAT] = VERSION
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
        """(epoch, seq, attempt, part) that a worker says it is working on."""
        row = self.row(worker)
        if row[PHASE] == IDLE:
            return None
        return row[W_EPOCH], row[SEQ], row[ATTEMPT], row[PART]

    def clear(self, worker: int) -> None:
        """Forget what a dead worker left behind, before its successor starts."""
        row = self.row(worker)
        for word in range(WORDS):
            row[word] = 0

    def close(self) -> None:
        """Give the mapping and the descriptor back. Idempotent."""
        if self.fd < 0:
            return
        self._words.release()
        self._view.release()
        with contextlib.suppress(BufferError):  # a row is still referred to; the mapping goes with it
            self._map.close()
        os.close(self.fd)
        self.fd = -1
