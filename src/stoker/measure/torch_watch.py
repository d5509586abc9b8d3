"""What the parent notes of one iterator of torch's loader, and how that becomes rows of the record."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

from stoker._metrics.blame import PARENT
from stoker._metrics.record import Slow
from stoker._worker.meter import Meter
from stoker.measure.torch_account import Account
from stoker.measure.torch_ring import Ring, TaskRow
from stoker.measure.torch_task import TaskClock

_clock = time.monotonic_ns
_AT_ONCE_NS = 200_000
"""A batch that came within this time had been ready, where the worker does not tell."""


class Watch:
    """Of one iterator; called on the thread that iterates, by the hooks of ``torch_loader``."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._tape = account.recorder.tape()
        self._epoch = account.epoch()
        self._seq = 0

    def asked(self) -> None:
        """``next()`` was called."""
        raise NotImplementedError

    def given(self) -> None:
        """It returns a batch."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """It raises: the end, an error of the dataset's, or what torch says of a worker that died."""
        if not isinstance(error, StopIteration):
            self._account.recorder.event("worker_died" if self._has_dead() else "error", _first_line(error))

    def _has_dead(self) -> bool:
        return False

    def opened(self, began_ns: int, ended_ns: int) -> None:
        """``iter()`` took this long."""
        self._account.recorder.opened(began_ns, ended_ns)

    def close(self) -> None:
        """The iterator is gone, or at its end. Idempotent."""
        self._account.recorder.end(self._tape)

    def _slow(self, index: int, ns: int, worker: int, seq: int, row: int) -> None:
        recorder = self._account.recorder
        if ns > recorder.slow_floor_ns:
            recorder.slow(Slow(index if index >= 0 else None, ns, worker, self._epoch, seq, row))


class InlineWatch(Watch):
    """Without workers: the consumer makes the batches itself."""

    def __init__(self, account: Account, iterator: Any) -> None:
        super().__init__(account)
        self.fetcher = iterator._dataset_fetcher
        self.collate_fn = self.fetcher.collate_fn
        self.clock = TaskClock(
            iterator._dataset, self.collate_fn, batched=getattr(self.fetcher, "auto_collation", True)
        )
        self._meter = Meter()
        self._asked_ns = 0

    def asked(self) -> None:
        self._asked_ns = now_ns = _clock()
        self.clock.begin(now_ns)
        self._meter.began(now_ns)

    def planned(self, indices: Any) -> Any:
        """The sampler has given these. Returns them as torch's fetcher is to see them."""
        self.clock.begin(_clock())
        return self.clock.indices(indices)

    def given(self) -> None:
        clock = self.clock
        now_ns = _clock()
        got_ns = clock.collated_ns or now_ns
        received_ns = clock.received_ns
        cpu_ns, runq_ns, metered_ns = self._meter.ended(self._asked_ns, got_ns)
        if clock.slow_ns:
            self._slow(clock.slow_index, clock.slow_ns, PARENT, self._seq, clock.slow_row)
        self._tape.write(
            self._asked_ns, got_ns, got_ns, now_ns, self._epoch, self._seq, 0, 0, PARENT, clock.rows, 0, 0, 0, 0,
            received_ns, received_ns, clock.fetched_ns, clock.collated_ns, got_ns,
            cpu_ns, runq_ns, metered_ns, clock.slow_row, clock.slow_ns,
        )  # fmt: skip
        self._seq += 1

    def close(self) -> None:
        self._meter.close()
        super().close()


class _Task(NamedTuple):
    """One that was sent to a worker. ``position``: it is the worker's n-th."""

    idx: int
    position: int
    dispatched_ns: int


class WorkersWatch(Watch):
    """With workers. Their tasks are delivered in the order in which each of them got them, whatever the order among them."""

    def __init__(self, account: Account, workers: list[Any], window: int | None, ring: Ring | None) -> None:
        super().__init__(account)
        self._ring = ring
        self._tasks: list[deque[_Task]] = [deque() for _ in workers]
        self._positions = [0] * len(workers)
        self._taken = 0
        self._fresh = True
        self._asked_ns = self._got_ns = self._planned_ns = self._depth = 0
        self._task: _Task | None = None
        self._worker = 0
        self._pids = [process.pid for process in workers]
        account.recorder.window = lambda: window
        for worker, process in enumerate(workers):
            account.recorder.worker(worker, pid=process.pid)

    def again(self) -> None:
        """Persistent workers begin another epoch. What was under way is nobody's."""
        self._epoch = self._account.epoch()
        self._seq = 0
        self._fresh = True
        for tasks in self._tasks:
            tasks.clear()

    def dispatching(self, iterator: Any) -> int:
        """A task may be about to go out. Returns the number that it would have."""
        if self._fresh:  # whatever the workers have made until now is of an earlier epoch
            self._fresh = False
            self._taken = sum(self._ring.done) if self._ring is not None else 0
        return int(iterator._send_idx)

    def dispatched(self, iterator: Any, idx: int) -> None:
        """It was put into a worker's queue, or there was none."""
        if iterator._send_idx > idx:
            worker = iterator._task_info[idx][0]
            self._tasks[worker].append(_Task(idx, self._positions[worker], _clock()))
            self._positions[worker] += 1

    def asked(self) -> None:
        self._task = None
        if self._ring is not None:
            self._depth = max(0, sum(self._ring.done) - self._taken)
        self._asked_ns = _clock()

    def got(self, worker: int) -> None:
        """The batch that was waited for has come from this worker."""
        self._got_ns = _clock()
        self._worker = worker
        tasks = self._tasks[worker]
        self._task = tasks.popleft() if tasks else None
        self._taken += 1

    def planned(self) -> None:
        """More work has been sent out."""
        self._planned_ns = _clock()

    def given(self) -> None:
        now_ns = _clock()
        task = self._task
        if task is None:  # torch gave a batch in a way we do not know
            self._tape.write(
                self._asked_ns, now_ns, now_ns, now_ns, self._epoch, self._seq, 0, 0, 0, 0,
                int(now_ns - self._asked_ns < _AT_ONCE_NS), self._depth, 0, 0, *_NOT_MEASURED,
            )  # fmt: skip
            self._seq += 1
            return
        made = self._ring.read(self._worker, task.position, task.idx) if self._ring is not None else None
        if made is None:
            made = TaskRow(task.position, task.idx)
        if made.slow_ns:
            self._slow(made.slow_index, made.slow_ns, self._worker, task.idx, made.slow_row)
        if made.sent_ns:
            ready = made.sent_ns <= self._asked_ns
        else:
            ready = self._got_ns - self._asked_ns < _AT_ONCE_NS
        self._tape.write(
            self._asked_ns, self._got_ns, self._planned_ns, now_ns, self._epoch, task.idx, 0, 0, self._worker, made.rows,
            int(ready), self._depth, 0, 0, task.dispatched_ns, made.received_ns, made.fetched_ns, made.collated_ns,
            made.sent_ns, made.cpu_ns, made.runq_ns, made.metered_ns, made.slow_row, made.slow_ns,
        )  # fmt: skip
        self._seq += 1

    def _has_dead(self) -> bool:
        return any(_is_dead(pid) for pid in self._pids)


_NOT_MEASURED = (0, 0, 0, 0, 0, 0, 0, 0, -1, 0)
"""The columns from ``dispatched_ns`` on."""


def _is_dead(pid: int) -> bool:
    """Whether a child has ended. It is not waited for: torch learns of deaths in that way."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] in b"ZX"
    except OSError:
        return True


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]
