"""The load of the host during an observation: CPUs used by others, throttling by a quota, available memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from stoker._host.cpus import Cpus
from stoker._host.memory_available import Gauge
from stoker._host.process_memory import footprint
from stoker._record.readings.machine import CounterReader

_MEMORY_NS = 60_000_000_000
"""The interval between two readings of a worker's memory. One reading takes up to 15 ms of the training loop's time."""


class HostLoad:
    """Reads counters at the start and the end of an observation. That takes some tenths of a millisecond of the thread that
    iterates.
    """

    def __init__(self, found: Cpus) -> None:
        self._cpus = found
        self._counters = CounterReader()
        self._gauge = Gauge()
        self._before = self._counters.read()
        self._memory_due_ns = 0
        self._worker_bytes: int | None = None

    def begin(self) -> None:
        """Start an observation."""
        self._before = self._counters.read()

    def known(self, wall_ns: int, workers_cpu_ns: int, handles: Sequence[Any]) -> dict[str, Any]:
        """The load since ``begin``, by the names in ``Observation``. Training steps took ``wall_ns`` of that time."""
        load = self._counters.read().since(self._before, workers_cpu_ns)
        elapsed_ns = max(1, load.wall_ns)
        found, available = self._cpus, self._gauge.read().available_bytes
        foreign = None
        if load.busy_cpu_ns is not None:
            used = max(0, load.busy_cpu_ns - (load.own_cpu_ns or 0)) / elapsed_ns
            # Load on CPUs that this rank does not count on takes nothing from it.
            foreign = max(0.0, used - (found.machine - found.usable))
        throttled = 0.0
        if load.quota_periods:
            throttled = (load.throttled_periods or 0) / load.quota_periods
        return {
            "own_cpu_ns": round((load.parent_cpu_ns or 0) * min(1.0, wall_ns / elapsed_ns)),
            "foreign_cpus": foreign,
            "throttled": throttled,
            "room_bytes": None if available is None else available // max(1, found.ranks),
            "worker_bytes": self._worker_memory(handles),
        }

    def _worker_memory(self, handles: Sequence[Any]) -> int | None:
        """Private memory of one worker, from the last reading."""
        now_ns = time.monotonic_ns()
        pids = [handle.pid for handle in handles if handle.pid]
        if pids and now_ns >= self._memory_due_ns:
            self._memory_due_ns = now_ns + _MEMORY_NS
            size = footprint(pids[0])
            if size is not None:
                self._worker_bytes = size.private_bytes
        return self._worker_bytes
