"""Lets the workers of a finished epoch go behind the training loop's back, and keeps their memory for the next epoch.

last batch taken ─► StopIteration at once
                    housekeeper: workers end, are reaped ─► KEEP_S later: memory goes back to the system
next iter() ──────► takes the memory, pages and all, for its own workers
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable

from stoker._runtime.pool.housekeeper import Job, housekeeper
from stoker._runtime.pool.outside_compile import outside_compile
from stoker._runtime.pool.pool import Pool

KEEP_S = 5.0
"""How long a loader without workers keeps the memory of its last epoch."""


@outside_compile
class FinishedPools:
    """Of one loader, which owns it. Iterators see their pools off here. Nothing remains when it dies, or after ``settle``."""

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        self._lock = threading.RLock()
        self._leaving: list[Pool] = []
        self._kept: Pool | None = None
        """The pool whose memory the next one takes. Its workers may still be on their way out."""
        self._job: Job | None = None

    @property
    def ours(self) -> bool:
        """Whether this process made it. In a forked child its workers, and its lock, are the parent's."""
        return os.getpid() == self._owner_pid

    def see_off(self, pool: Pool) -> None:
        """All its batches were taken. Return at once where its workers can leave by themselves, else wait for them."""
        if not pool.leave():
            pool.close()
            return
        with self._lock:
            self._leaving = [each for each in self._leaving if not each.ended] + [pool]
            before, self._kept = self._kept, pool
            before_job, self._job = self._job, None
        if before is not None:  # two iterators at once: the memory of one is enough
            housekeeper.forget(before_job)
            before.close()
        if housekeeper.do(pool.see_off) is None:
            pool.close()
            return
        here = weakref.ref(self)
        self._job = housekeeper.do(lambda: _let_go(here, pool), after_s=KEEP_S)

    def take_memory(self) -> Pool | None:
        """The pool whose memory a new one is to take over; None where there is none. It is the caller's from now on."""
        with self._lock:
            pool, self._kept = self._kept, None
            job, self._job = self._job, None
        housekeeper.forget(job)
        return pool

    def kept(self) -> list[Pool]:
        """Whose memory is kept. Any thread."""
        pool = self._kept
        return [] if pool is None else [pool]

    def let_go(self, pool: Pool | None = None) -> None:
        """Give the kept memory back, if it is this pool's."""
        if not self.ours:
            return
        with self._lock:
            found = self._kept
            if found is None or (pool is not None and found is not pool):
                return
            self._kept = None
        found.close()

    def settle(self) -> None:
        """Wait until all workers have ended, within the executor's deadline, and give the memory back. Idempotent."""
        if not self.ours:
            return
        with self._lock:
            leaving, self._leaving = self._leaving, []
            job, self._job = self._job, None
            self._kept = None
        for pool in leaving:
            pool.close()
        housekeeper.forget(job)
        if leaving or job is not None:
            housekeeper.tidy()

    def __del__(self, _exits: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _exits():
            self.settle()


def _let_go(finished_pools: weakref.ref[FinishedPools], pool: Pool) -> None:
    found = finished_pools()
    if found is not None:
        found.let_go(pool)
