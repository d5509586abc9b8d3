"""Reads the memory use of worker processes, and asks idle workers to release caches.

To ask, the parent writes a number to the status page and sends one wake-up per worker into the task channel. The number is the
request; the message only makes a worker look at it. So a worker that gets two messages does nothing the second time. Workers that
share a channel may take each other's wake-up. The other worker then looks after its next task. When an epoch begins first, the
request is withdrawn. Nobody waits for anybody, so nothing can hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from stoker._host.process_memory import footprint
from stoker._runtime.executors.base import WorkerMemory
from stoker._runtime.executors.process.channels import TaskChannel
from stoker._runtime.executors.process.worker_handle import WorkerHandle
from stoker._runtime.protocol import wire
from stoker._runtime.protocol.status_page import PRIVATE_BYTES, PROCESS_CPU_NS, THREADS, TRIM, StatusPage

_LASTS_S = 1.0
_COST = 50
_WAKE_UP = wire.pack_task(wire.VERSION, wire.TaskKind.LOOK, *(0,) * (len(wire.TaskHeader._fields) - 2))


def order_trim(page: StatusPage, number: int, channels: Iterable[TaskChannel]) -> None:
    """Ask the workers of these channels to release caches. ``channels`` has one entry per worker, even if they share one."""
    page.control[TRIM] = number
    for channel in channels:
        if not channel.backlog:  # a full channel: the worker that takes a message looks afterwards
            channel.send(_WAKE_UP)


class MemoryReader:
    """Reads the memory of each worker process. Any thread.

    A reading takes 5 to 15 ms per worker. So it is reused for a second, or longer with many workers, and takes at most a
    fiftieth of the time.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._due = 0.0
        self._pids: list[tuple[int, int]] = []
        self._readings: list[WorkerMemory] = []

    def read(
        self, page: StatusPage, handles: Mapping[int, WorkerHandle], *, sizes: bool = True
    ) -> list[WorkerMemory]:
        """Return the memory of these workers, at most a moment old. Words of the status page are current."""
        pids = [(worker, handle.process.pid) for worker, handle in sorted(handles.items())]
        if not sizes:
            return [
                _with_page_words(page, WorkerMemory(worker, pid, None, None, None)) for worker, pid in pids
            ]
        began = self._clock()
        if began >= self._due or pids != self._pids:
            self._readings = [_reading(worker, pid) for worker, pid in pids]
            self._pids = pids
            ended = self._clock()
            self._due = ended + max(_LASTS_S, _COST * (ended - began))
        return [_with_page_words(page, reading) for reading in self._readings]

    def forget(self) -> None:
        """Drop the last reading."""
        self._due = 0.0


def _reading(worker: int, pid: int) -> WorkerMemory:
    size = footprint(pid)
    pss, private = (None, None) if size is None else size
    return WorkerMemory(worker, pid, pss, private, None)


def _with_page_words(page: StatusPage, reading: WorkerMemory) -> WorkerMemory:
    row = page.row(reading.worker)
    baseline = row[PRIVATE_BYTES]
    return reading._replace(
        baseline_bytes=baseline if baseline > 0 else None,
        threads=row[THREADS] or None,
        cpu_ns=row[PROCESS_CPU_NS] or None,
    )
