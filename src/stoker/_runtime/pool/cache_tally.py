"""Sums what sample caches did over all pools of a loader, those that have ended too: ``loader.stats()["cache"]`` and the record."""

from __future__ import annotations

import threading
import weakref
from dataclasses import asdict
from typing import Any

from stoker._record.schema import CacheUse
from stoker._runtime.executors.base import CountsCacheUse, Executor, counts_cache_use


class CacheTally:
    """Owner: the loader's ``LoaderStats``. Pools add and end executors; any thread reads.

    A pool that nobody closes ends with its executor: what its caches did since the last reading is then not counted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = CacheUse()
        self._running: dict[int, weakref.ref[Any]] = {}

    def after_fork(self) -> None:
        """Get a new lock in a forked child: a thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def add(self, executor: Executor) -> None:
        """Count this executor's caches from now on. Idempotent."""
        if id(executor) not in self._running and counts_cache_use(executor):
            with self._lock:
                self._running[id(executor)] = weakref.ref(executor)

    def end(self, executor: Executor) -> None:
        """Keep the executor's last counts: it is closed. Idempotent."""
        with self._lock:
            found = self._running.pop(id(executor), None)
            if found is not None and found() is executor and counts_cache_use(executor):
                self._ended = _sum(self._ended, executor)

    def use(self) -> CacheUse | None:
        """The sums so far, as a new object. None: no cache was used."""
        with self._lock:
            found = self._ended
            for reference in self._running.values():
                executor = reference()
                if executor is not None:
                    found = _sum(found, executor)
        return _sum(found) if any(asdict(found).values()) else None


def _sum(use: CacheUse, *executors: CountsCacheUse) -> CacheUse:
    columns = (tuple(asdict(use).values()), *(executor.cache_counts() for executor in executors))
    return CacheUse(*map(sum, zip(*columns, strict=True)))
