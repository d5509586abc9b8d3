"""Writes a worker's own memory use to the status page, where the parent can read it even after an OOM kill."""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Any

from stoker._host.process_memory import footprint
from stoker._runtime.protocol.status_page import PRIVATE_BYTES, PROCESS_CPU_NS, RESIDENT_BYTES, THREADS

_RECORD_EVERY_NS = 200_000_000
"""The least time between two writes of the worker's size to the status page."""

_IDLE_MS = 100
"""A worker without a task for this long has time to measure itself."""

_DUE_NS = 3_000_000_000
"""One that is never out of work measures itself after this time: the run is long enough then."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryProbe:
    """Owner: the worker's loop, on its one thread. ``row`` is the worker's row of the status page."""

    def __init__(self, row: Any, channel: socket.socket) -> None:
        self._row = row
        self._channel = channel
        self._statm_fd = _open_statm()
        self._recorded_ns = 0
        self._tasks = 0
        self._due_ns = time.monotonic_ns() + _DUE_NS
        self._idle_cpu_ns = 0

    def record(self, now_ns: int) -> None:
        """Write the resident size to the status page, unless it was written a moment ago. Called before every task."""
        if now_ns - self._recorded_ns > _RECORD_EVERY_NS and self._statm_fd >= 0:
            # CPU time before the first task belongs to the start.
            self._idle_cpu_ns = self._idle_cpu_ns or time.process_time_ns()
            self._recorded_ns = now_ns
            pages = os.pread(self._statm_fd, 128, 0).split()[1]
            self._row[RESIDENT_BYTES] = int(pages) * _PAGE_BYTES
            self._row[PROCESS_CPU_NS] = time.process_time_ns() - self._idle_cpu_ns
            self._row[THREADS] = threads()

    def recv(self, nbytes: int) -> bytes:
        """Receive as the channel's ``recv`` does, and measure private memory once; growth is reported against it.

        Measuring takes 10 to 20 ms, and more where a large parent was forked. Short epochs must not pay for it. So it is done
        when there has been no work for a while, or late.
        """
        if self._tasks and not self.settled:
            if time.monotonic_ns() < self._due_ns:
                try:
                    return self._channel.recv(nbytes, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    if self._awaited(_IDLE_MS):
                        return self._channel.recv(nbytes)
            size = footprint()
            self._row[PRIVATE_BYTES] = -1 if size is None else max(1, size.private_bytes)
        self._tasks += 1
        return self._channel.recv(nbytes)

    def _awaited(self, patience_ms: int) -> bool:
        """Whether a task, or the end of all tasks, comes within this time."""
        waiting = select.poll()
        waiting.register(self._channel.fileno(), select.POLLIN)
        return bool(waiting.poll(patience_ms))

    def close(self) -> None:
        """Close the descriptor. Workers need not: it ends with the process."""
        if self._statm_fd >= 0:
            os.close(self._statm_fd)
            self._statm_fd = -1

    @property
    def settled(self) -> bool:
        """Whether private memory was measured, so that ``recv`` is not needed any more."""
        return bool(self._row[PRIVATE_BYTES])


def threads() -> int:
    """Return how many threads this process has, native ones too. The link count of a folder in /proc counts its folders."""
    try:
        return os.stat("/proc/self/task").st_nlink - 2
    except OSError:
        return 0


def _open_statm() -> int:
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no /proc: the size is then not known
        return -1
