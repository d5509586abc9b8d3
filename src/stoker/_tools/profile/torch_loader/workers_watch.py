"""Watches an iterator of torch's loader that has workers, in the parent."""

from __future__ import annotations

import time
import weakref
from collections import deque
from typing import Any, NamedTuple

from stoker._record.readings.worker_usage import Size
from stoker._record.schema import StepRow
from stoker._tools.profile.torch_loader.iterator_watch import AT_ONCE_NS, IteratorWatch, in_words
from stoker._tools.profile.torch_loader.queue_hook import QueueHook
from stoker._tools.profile.torch_loader.recorders import RecordedLoader
from stoker._tools.profile.torch_loader.task_ring import TaskRing, TaskRow

_clock = time.monotonic_ns


class _SentTask(NamedTuple):
    """One that was sent to a worker. ``position``: it is the worker's n-th."""

    idx: int
    position: int
    dispatched_ns: int


class WorkersWatch(IteratorWatch):
    """With workers. Their tasks are delivered in the order in which each of them got them, whatever the order among them."""

    def __init__(self, account: RecordedLoader, iterator: Any, ring: TaskRing | None) -> None:
        super().__init__(account)
        self._ring = ring
        self._pids = [process.pid for process in iterator._workers]
        self._tasks: list[deque[_SentTask]] = [deque() for _ in self._pids]
        self._positions = [0] * len(self._pids)
        self._taken = 0
        self._under_way = 0
        """Tasks whose batches have not come."""
        self._fresh = True
        self._queue_hook = QueueHook(iterator)
        self._got_ns = self._planned_ns = self._depth = 0
        self._task: _SentTask | None = None
        self._worker = 0
        self._introduce(len(self._pids) * getattr(iterator, "_prefetch_factor", 0) or None)

    def _introduce(self, window: int | None) -> None:
        """To the recorder, which is not to hold on to this."""
        recorder, reference = self._account.recorder, weakref.ref(self)
        recorder.connect(
            window=lambda: window,
            tallies=lambda: () if (alive := reference()) is None else alive.tallies(),
        )
        for worker, pid in enumerate(self._pids):
            recorder.worker(worker, pid=pid)

    def tallies(self) -> list[Size]:
        """Threads and CPU time of the workers, as far as they have told."""
        told = (
            []
            if self._ring is None
            else [self._ring.worker_times(worker) for worker in range(len(self._pids))]
        )
        return [
            Size(worker, pid, None, None, None, *each)
            for worker, (pid, each) in enumerate(zip(self._pids, told, strict=False))
            if each is not None
        ]

    def again(self) -> None:
        """Persistent workers begin another epoch. What was under way is nobody's."""
        self._epoch = self._account.epoch()
        self._seq = 0
        self._fresh = True
        self._under_way = 0
        for tasks in self._tasks:
            tasks.clear()

    def dispatching(self, iterator: Any) -> int:
        """A task may be about to go out. Returns the number that it would have."""
        if self._fresh:  # whatever the workers have made until now is of an earlier epoch
            self._fresh = False
            self._taken = self._ring.done if self._ring is not None else 0
        return int(iterator._send_idx)

    def dispatched(self, iterator: Any, idx: int) -> None:
        """Note that a task was put into a worker's queue, or that there was none."""
        if iterator._send_idx > idx:
            worker = iterator._task_info[idx][0]
            self._tasks[worker].append(_SentTask(idx, self._positions[worker], _clock()))
            self._positions[worker] += 1
            self._under_way += 1

    def asked(self) -> None:
        self._task = None
        self._queue_hook.received_ns = 0
        if self._ring is not None:
            self._depth = max(0, self._ring.done - self._taken)
        self._asked_ns = _clock()
        self._waits(self._asked_ns)
        if self._under_way == 0:  # there will be no batch: workers that do not stay end with this call
            self._account.recorder.leaving()

    def got(self, worker: int) -> None:
        """The batch that was waited for has come from this worker."""
        self._got_ns = self._planned_ns = _clock()
        self._worker = worker
        tasks = self._tasks[worker]
        self._task = tasks.popleft() if tasks else None
        self._taken += 1
        self._under_way -= 1

    def planned(self) -> None:
        """More work has been sent out."""
        self._planned_ns = _clock()

    def given(self) -> None:
        now_ns = _clock()
        task, asked_ns = self._task, self._asked_ns
        self._waited(now_ns - asked_ns, now_ns)
        if task is None:
            self._not_known(asked_ns, now_ns, self._depth)
            return
        # torch reads and unpickles the batch, and then plans. The record has it the other way round.
        received_ns, pinned = self._queue_hook.arrival(task.idx)
        got_ns = min(max(received_ns, asked_ns), self._got_ns) if received_ns else self._got_ns
        planned_ns = got_ns + self._planned_ns - self._got_ns
        made = self._made(task)
        self._rows = made.rows
        if made.slow_ns:
            self._slow(made.slow_index, made.slow_ns, self._worker, task.idx, made.slow_row)
        if made.sent_ns:
            ready = made.sent_ns <= asked_ns
        else:
            ready = got_ns - asked_ns < AT_ONCE_NS
        self._step_buffer.write(
            StepRow(
                asked_ns=asked_ns, got_ns=got_ns, planned_ns=planned_ns, given_ns=now_ns, epoch=self._epoch, seq=task.idx,
                part=0, attempt=0, worker=self._worker, rows=made.rows, ready=int(ready), depth=self._depth,
                dispatched_ns=task.dispatched_ns, received_ns=made.received_ns, fetched_ns=made.fetched_ns,
                collated_ns=made.collated_ns, sent_ns=made.sent_ns,
                cpu_ns=made.cpu_ns, runq_ns=made.runq_ns, metered_ns=made.metered_ns,
                slow_row=made.slow_row, slow_ns=made.slow_ns,
            )
        )  # fmt: skip
        if pinned:
            self._step_buffer.pinned(planned_ns, now_ns)
        self._seq += 1

    def _made(self, task: _SentTask) -> TaskRow:
        """What its worker tells of a task."""
        found = self._ring.read(self._worker, task.position, task.idx) if self._ring is not None else None
        return found or TaskRow(task.position, task.idx)

    def failed(self, error: BaseException) -> None:
        if self._task is not None and not isinstance(error, StopIteration | KeyboardInterrupt):
            self.given()  # the error, in place of its batch
        super().failed(error)

    def _place(self, error: BaseException) -> str:
        """The worker that has had its task for longest is the one that is waited for."""
        under_way = [(tasks[0].idx, worker) for worker, tasks in enumerate(self._tasks) if tasks]
        if not under_way:
            return ""
        worker = min(under_way)[1]
        found = None if self._ring is None else self._ring.worked_on(worker)
        return f"worker {worker}" if found is None else f"worker {worker} is on {in_words(*found)}"

    def _has_dead(self) -> bool:
        return any(_is_dead(pid) for pid in self._pids)


def _is_dead(pid: int) -> bool:
    """Whether a child has ended. It is not waited for: torch learns of deaths in that way."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] in b"ZX"
    except OSError:
        return True
