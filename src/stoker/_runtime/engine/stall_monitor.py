"""Watches the wait for one batch: raises after ``timeout``, and warns when the wait is unusually long."""

from __future__ import annotations

from time import monotonic

from stoker._record import call_site
from stoker._runtime.executors.base import Executor, WorkerActivity
from stoker._runtime.executors.process.crash_report import state_of
from stoker._runtime.protocol.status_page import NO_EPOCH
from stoker._runtime.scheduler import policy
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.ticket_text import place
from stoker.errors import WorkerStalled, WorkerTimeout

_SHOWN = 4


class StallMonitor:
    """One per call of ``next`` that has to wait, on the thread that iterates."""

    def __init__(
        self, executor: Executor, scheduler: Scheduler, epoch: int, name: str, timeout_s: float
    ) -> None:
        self._executor = executor
        self._scheduler = scheduler
        self._epoch = epoch
        self._name = name
        self._timeout_s = timeout_s
        self._began = monotonic()
        self._patience_s = 0.0
        self.stall = ""
        """The last warning, in one line."""

    def left_s(self) -> float | None:
        """How long to wait before the next ``check``. An executor that makes batches on this thread enforces the timeout itself."""
        deadline = self._timeout_s if self._timeout_s > 0 else None
        if not self._executor.eager:
            return deadline
        if not self._patience_s:
            self._patience_s = policy.PATIENCE_S
        deadline = self._patience_s if deadline is None else min(deadline, self._patience_s)
        return max(0.001, self._began + deadline - monotonic())

    def check(self) -> bool:
        """Raise WorkerTimeout after the timeout. Warn, and return True, if the wait is unusually long."""
        waited_s = monotonic() - self._began
        if self._timeout_s > 0 and waited_s >= self._timeout_s:
            where = self._whereabouts() or "; no worker is working on a batch"
            raise WorkerTimeout(f"DataLoader timed out after {self._timeout_s} seconds{where}")
        if not self._executor.eager or waited_s < self._patience_s:
            return False
        usual_ns = self._scheduler.median_ns()
        # Looked up only now, because a median is costly.
        if waited_s < (patience_s := policy.patience_s(usual_ns)):
            self._patience_s = patience_s
            return False
        usual = f"recent ones took {usual_ns / 1e9:.2g} s" if usual_ns else "none has arrived yet"
        self._patience_s *= 2
        whereabouts = self._whereabouts() or "; no worker is working on a batch"
        # Replace workers that hang in an earlier epoch.
        self._executor.dismiss(self._epoch)
        which = f"batch {self._scheduler.head} ({usual}) [stoker explain {WorkerStalled.code}]"
        text = f"DataLoader {self._name!r} has waited {waited_s:.1f} s for {which}{whereabouts}"
        self.stall = "; ".join(line.strip() for line in text.splitlines()[:2])
        call_site.warn(text, WorkerStalled)
        return True

    def _whereabouts(self) -> str:
        """The dataset index each worker is on, with the stacks of those that make the awaited batch."""
        head = self._scheduler.head
        seen = sorted(
            self._executor.activities(),
            key=lambda each: (each.epoch != self._epoch, each.seq != head, -each.since_ns),
        )
        awaited = [each for each in seen if each.epoch == self._epoch and each.seq == head]
        telling = awaited or seen[:1]
        text = "".join(self._described(each, stack=each in telling) for each in seen[:_SHOWN])
        if len(seen) > _SHOWN:
            text += f"\n  and {len(seen) - _SHOWN} more workers are busy"
        for worker, pid in self._executor.starting()[:_SHOWN]:
            text += f"\n  worker {worker} (pid {pid}) has not started yet{self._stack(worker)}"
        return text if awaited else text + self._hindered({each.pid for each in seen})

    def _hindered(self, busy: set[int]) -> str:
        """Idle workers that cannot take the awaited batch, because they are stopped for instance."""
        pids = [handle.pid for handle in self._executor.workers if handle.pid and handle.pid not in busy]
        states = ((pid, state_of(pid)) for pid in pids)
        return "".join(f"\n  a worker (pid {pid}) takes no work: {state}" for pid, state in states if state)

    def _described(self, seen: WorkerActivity, *, stack: bool) -> str:
        ticket = self._scheduler.ticket(seen.seq) if seen.epoch == self._epoch else None
        where = (
            "a batch of an earlier epoch, which is no longer needed,"
            if seen.epoch != NO_EPOCH
            else "a request to free its caches"
        )
        if ticket is not None:
            where = place(ticket, seen.row, collating=seen.collating)
        who = f"worker {seen.worker} (pid {seen.pid})" if seen.pid else f"worker thread {seen.worker}"
        text = f"\n  {who} has been on {where} for {seen.since_ns / 1e9:.1f} s"
        return text + self._stack(seen.worker) if stack else text

    def _stack(self, worker: int) -> str:
        return "".join(f"\n    {line}" for line in self._executor.stack(worker))
