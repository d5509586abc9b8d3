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

    A garbage collection may end a forgotten pool in the middle of any method here, on the same thread. So the lock is reentrant,
    and sums are stored only if no other was stored meanwhile. A pool that nobody closes ends with its executor: what its caches
    did since the last reading is then not counted.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._ended = CacheUse()
        self._running: dict[int, weakref.ref[Any]] = {}

    def after_fork(self) -> None:
        """Get a new lock in a forked child: a thread of the parent may hold the old one."""
        self._lock = threading.RLock()

    def add(self, executor: Executor) -> None:
        """Count this executor's caches from now on. Idempotent."""
        if counts_cache_use(executor):
            with self._lock:
                self._running[id(executor)] = weakref.ref(executor)

    def end(self, executor: Executor) -> None:
        """Keep the executor's last counts: it is closed. Idempotent."""
        with self._lock:
            found = self._running.pop(id(executor), None)
            if found is None or found() is not executor or not counts_cache_use(executor):
                return
            while True:
                before = self._ended
                after = _sum(before, executor)
                if self._ended is before:
                    self._ended = after
                    return

    def use(self) -> CacheUse | None:
        """The sums so far, as a new object. None: no cache was used."""
        with self._lock:
            while True:
                ended = self._ended
                executors = [
                    each for reference in [*self._running.values()] if (each := reference()) is not None
                ]
                if self._ended is ended:
                    break
            found = _sum(ended, *executors)
        return found if any(asdict(found).values()) else None


def _sum(use: CacheUse, *executors: CountsCacheUse) -> CacheUse:
    columns = (tuple(asdict(use).values()), *(executor.cache_counts() for executor in executors))
    return CacheUse(*map(sum, zip(*columns, strict=True)))
