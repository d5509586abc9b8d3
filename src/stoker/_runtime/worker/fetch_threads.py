"""Fetches rows of one batch on several threads of a worker process (``threads_per_worker``).

    batch maker's thread:  fetch() ─► one job for all threads ─► wait ─► samples or errors, in row order
    each fetch thread:     take the next row ─► fetch(index) ─► … until no row is left, one raised, or the epoch is over

Rows are started in order. So when several rows raise, the first error is the one that a single thread would have raised.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from stoker._runtime.cache.counters import CacheCounters, adopt, counters
from stoker._runtime.protocol.status_page import AT_ONCE, EPOCH, INDEX, ROW, WORDS, index_word
from stoker._runtime.protocol.thread_context import current
from stoker._runtime.protocol.worker_spec import BatchOrder, WorkerSpec
from stoker._runtime.worker import cpu_meter
from stoker._runtime.worker.bad_samples import FetchError
from stoker._runtime.worker.rng.per_sample import SampleRng
from stoker._runtime.worker.rng.seeder import Seeder
from stoker._runtime.worker.stream import Abandoned

_clock = time.monotonic_ns


@dataclass(slots=True)
class FetchJob:
    """The rows of one order. Shared by the fetch threads; all but the first five fields are guarded by their lock.

    ``rows`` count within the batch, ``places`` within ``indices``. With ``collect_errors``, a failing row does not end the job.
    """

    order: BatchOrder
    fetch: Callable[[Any], Any]
    indices: Sequence[Any]
    first: int
    collect_errors: bool
    outcomes: list[Any]
    taken: int = 0
    stopped: bool = False
    abandoned: bool = False
    in_progress: dict[int, None] = field(default_factory=dict)
    """Places that are being fetched, oldest first."""
    slow_row: int = -1
    slow_ns: int = 0


class FetchThreads:
    """The fetch threads of one batch maker, which calls ``fetch`` and ``close`` on its own thread. They start with the first job.

    ``watch`` shows the oldest row that is being fetched, its index, and how many rows are.
    """

    def __init__(self, spec: WorkerSpec, worker: int, seeder: Seeder, watch: Any) -> None:
        self._spec = spec
        self._worker = worker
        self._seeder = seeder
        self._watch = watch
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[FetchJob | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._spent = [0, 0]

    def fetch(
        self,
        order: BatchOrder,
        fetch: Callable[[Any], Any],
        indices: Sequence[Any],
        first: int,
        *,
        collect_errors: bool,
    ) -> FetchJob | None:
        """Fetch these rows, beginning at row ``first``. All of them are fetched, unless one raised.

        Returns None if no thread could start. Raises Abandoned when the epoch is over.
        """
        wanted = min(self._spec.threads, len(indices))
        while len(self._threads) < wanted:
            if not self._start():
                break
        count = min(wanted, len(self._threads))
        if not count:
            return None
        job = FetchJob(order, fetch, indices, first, collect_errors, [None] * len(indices))
        for _ in range(count):
            self._jobs.put(job)
        for _ in range(count):
            self._done.get()
        self._watch.here[AT_ONCE] = 0
        if job.abandoned:
            raise Abandoned
        return job

    def spent(self) -> tuple[int, int]:
        """Return the CPU time of all threads so far, and their average run-queue time."""
        cpu_ns, runq_ns = self._spent
        return cpu_ns, runq_ns // max(1, len(self._threads))

    def close(self) -> None:
        """End the threads, each between two jobs. A worker process that ends need not. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start(self) -> bool:
        name = f"stoker-fetch-{len(self._threads)}"
        thread = threading.Thread(target=self._run, args=(counters(),), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left: fewer will do
            return False
        self._threads.append(thread)
        return True

    def _run(self, worker_counters: CacheCounters) -> None:
        here = [0] * WORDS
        adopt(worker_counters)
        current.sample_rng = sample_rng = SampleRng(self._spec, self._worker, here)
        account = cpu_meter.open_account() if self._spec.metered else -1
        before = cpu_meter.read_account(account)
        while (job := self._jobs.get()) is not None:
            sample_rng.begin(job.order)
            try:
                while (place := self._take(job)) >= 0:
                    here[ROW] = job.first + place
                    self._seeder.row_on_thread(job.order, job.first + place)
                    self._make(job, place)
            finally:
                sample_rng.end()
                job = None  # it must not keep the samples alive
                now = cpu_meter.read_account(account)
                with self._lock:
                    self._spent[0] += now[0] - before[0]
                    self._spent[1] += now[1] - before[1]
                before = now
                self._done.put(None)
        if account >= 0:
            os.close(account)

    def _make(self, job: FetchJob, place: int) -> None:
        began_ns = _clock()
        try:
            outcome = job.fetch(job.indices[place])
        except BaseException as error:  # raised or counted on the batch maker's thread
            outcome = FetchError(error)
        ns = _clock() - began_ns
        with self._lock:
            job.outcomes[place] = outcome
            if type(outcome) is FetchError and not (
                job.collect_errors and isinstance(outcome.error, Exception)
            ):
                job.stopped = True
            if ns > job.slow_ns:
                job.slow_row, job.slow_ns = job.first + place, ns
            del job.in_progress[place]
            self._show(job)
        outcome = None  # the error refers to this frame

    def _take(self, job: FetchJob) -> int:
        """Return the place of the next row to fetch; -1 when there is none."""
        there = self._watch.there
        with self._lock:
            if there is not None and there[EPOCH] != job.order.epoch and job.taken < len(job.indices):
                job.stopped = job.abandoned = True
            if job.stopped or job.taken == len(job.indices):
                return -1
            place = job.taken
            job.taken += 1
            job.in_progress[place] = None
            self._show(job)
            return place

    def _show(self, job: FetchJob) -> None:
        here, oldest = self._watch.here, next(iter(job.in_progress), None)
        here[AT_ONCE] = len(job.in_progress)
        if oldest is not None:
            here[ROW], here[INDEX] = job.first + oldest, index_word(job.indices[oldest])
