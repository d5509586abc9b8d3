"""The load of the host during an observation: CPUs used by others, throttling by a quota, available memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from stoker._host.cpus import Cpus
from stoker._host.memory_available import Gauge
from stoker._host.process_memory import footprint
from stoker._record.machine import CounterReader

_WEIGH_NS = 60_000_000_000
"""A worker is weighed so often: it takes up to 15 ms, for which the training loop waits."""


class HostLoad:
    """Read at the start and the end of an observation, in some tenths of a millisecond. On the thread that iterates."""

    def __init__(self, found: Cpus) -> None:
        self._cpus = found
        self._dials = CounterReader()
        self._gauge = Gauge()
        self._before = self._dials.read()
        self._weigh_due_ns = 0
        self._worker_bytes: int | None = None

    def begin(self) -> None:
        """From here on."""
        self._before = self._dials.read()

    def known(self, wall_ns: int, workers_cpu_ns: int, handles: Sequence[Any]) -> dict[str, Any]:
        """The load since ``begin``, by the names in ``Observation``. Training steps took ``wall_ns`` of that time."""
        load = self._dials.read().since(self._before, workers_cpu_ns)
        elapsed_ns = max(1, load.wall_ns)
        found, available = self._cpus, self._gauge.read().available_bytes
        foreign = None
        if load.busy_cpu_ns is not None:
            used = max(0, load.busy_cpu_ns - (load.own_cpu_ns or 0)) / elapsed_ns
            # What others use of the CPUs that are not ours to count on takes nothing from us.
            foreign = max(0.0, used - (found.machine - found.usable))
        throttled = 0.0
        if load.quota_periods:
            throttled = (load.throttled_periods or 0) / load.quota_periods
        return {
            "own_cpu_ns": round((load.parent_cpu_ns or 0) * min(1.0, wall_ns / elapsed_ns)),
            "foreign_cpus": foreign,
            "throttled": throttled,
            "room_bytes": None if available is None else available // max(1, found.ranks),
            "worker_bytes": self._weighed(handles),
        }

    def _weighed(self, handles: Sequence[Any]) -> int | None:
        """Private memory of one worker, as of a while ago."""
        now_ns = time.monotonic_ns()
        pids = [handle.pid for handle in handles if handle.pid]
        if pids and now_ns >= self._weigh_due_ns:
            self._weigh_due_ns = now_ns + _WEIGH_NS
            size = footprint(pids[0])
            if size is not None:
                self._worker_bytes = size.private_bytes
        return self._worker_bytes
