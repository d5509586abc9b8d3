"""Does what can wait on a thread of its own: ends workers of finished epochs and gives idle memory back.

The training thread only notes the job. One thread per process serves all loaders. It exists while there are jobs, so a
process without a loader has none.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from stoker._runtime.executors.interrupt_delay import InterruptDelay

_JOIN_S = 2.0
_numbers = itertools.count()


@dataclass(order=True, slots=True)
class Job:
    """Something to do at ``due_s`` of the monotonic clock."""

    due_s: float
    number: int = field(default_factory=lambda: next(_numbers))
    action: Callable[[], None] | None = field(default=None, compare=False)


class Housekeeper:
    """Jobs in the order in which they are due. Any thread, in finalizers too; a forked child begins with an empty one.

    The lock is entered itself, not through its condition: Ctrl-C could come in the condition's ``__enter__`` and leave it held.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may call in the middle of a call
        self._changed = threading.Condition(self._lock)
        self._jobs: list[Job] = []
        self._thread: threading.Thread | None = None

    def do(self, action: Callable[[], None], after_s: float = 0.0) -> Job | None:
        """Have it done on the housekeeper's thread. None where no thread can be had: then the caller has to see to it."""
        job = Job(time.monotonic() + after_s, action=action)
        with InterruptDelay(), self._lock:  # a thread that is known but was never started would do no job
            heapq.heappush(self._jobs, job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stoker-housekeeper", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no more threads, or the interpreter is shutting down
                    self._thread = None
                    self._jobs.remove(job)
                    return None
            elif self._jobs[0] is job:
                self._changed.notify()
        return job

    def forget(self, job: Job | None) -> None:
        """Drop a job. One that is being done is not stopped. Costs nothing: the thread finds out later."""
        if job is not None:
            job.action = None

    def tidy(self) -> None:
        """Drop jobs that were forgotten. When none is left the thread ends, and this waits for that."""
        with InterruptDelay(), self._lock:
            self._jobs = [job for job in self._jobs if job.action is not None]
            heapq.heapify(self._jobs)
            idle = self._thread if not self._jobs else None
            self._changed.notify()
        if idle is not None and idle is not threading.current_thread():
            idle.join(_JOIN_S)

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:
                logging.getLogger("stoker").exception("tidying up behind a loader failed")
            del action

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next job; None when there is none, and this thread ends."""
        with self._lock:
            while True:
                while self._jobs and self._jobs[0].action is None:
                    heapq.heappop(self._jobs)
                if not self._jobs:
                    self._thread = None
                    return None
                left_s = self._jobs[0].due_s - time.monotonic()
                if left_s <= 0:
                    return heapq.heappop(self._jobs).action
                self._changed.wait(left_s)


housekeeper = Housekeeper()


def _begin_anew() -> None:
    """In a forked child: the thread and its jobs are the parent's."""
    housekeeper.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
