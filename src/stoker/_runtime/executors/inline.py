"""Makes batches without workers, on the thread that asks for them."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from stoker._host.code_location import is_stoker
from stoker._runtime.executors import time_limit
from stoker._runtime.executors.base import HEAP, Arrival, IterationStart, WorkerActivity, WorkerMemory
from stoker._runtime.executors.in_process import carry_out, carry_out_plainly
from stoker._runtime.executors.interrupt_delay import InterruptDelay
from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.protocol.status_page import COLLATING, EPOCH, NO_ROW, PHASE, ROW, WORDS, cache_counts
from stoker._runtime.protocol.worker_spec import Resume, WorkerSpec
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.ticket_text import place
from stoker._runtime.scheduler.types import Part, Receipt, Spans, Task, Ticket
from stoker._runtime.worker import trim
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView
from stoker._runtime.worker.cpu_meter import SingleTaskMeter
from stoker.errors import WorkerTimeout

_FRAMES = 16


class InlineExecutor:
    """Makes one batch per ``wait``, within ``timeout_s`` where that can be enforced. Restores the global generators."""

    shared_memory = False
    eager = False
    workers: Sequence[Any] = ()

    def __init__(self, spec: WorkerSpec) -> None:
        self.guard = InterruptGuard()
        self._page = [0] * WORDS
        self._epoch = [0] * WORDS
        watch = StatusView(self._page, self._epoch)
        self._maker = BatchMaker(spec, 0, inline=True, keeps_state=True, watch=watch)
        self._warned = False
        self._tasks: deque[Task] = deque()
        self._metered = spec.metered
        self._meter: SingleTaskMeter | None = None
        self._meter_of = (0, 0)
        self._start = IterationStart(0, 0)

    def begin(self, start: IterationStart) -> None:
        self._start = start
        self._epoch[EPOCH] = start.epoch

    def agree(self, layout: int) -> None:
        return None

    def spawn(self, worker: int) -> None:
        return None

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        if timeout_s == 0 or not self._tasks:  # batches are made only while the caller waits
            return []
        self.guard.hold()
        task = self._tasks.popleft()
        if task.ticket.epoch != self._start.epoch:
            return [_withdrawn(task)]
        if self._metered:
            self._open_meter()
        if timeout_s is None:
            return [self._carry_out(task)]
        return [self._carry_out_within(task, timeout_s)]

    def direct(self) -> Callable[[Ticket], Any]:
        """Return a function that makes the batch of a ticket at once: its ``BatchReady`` or ``BatchFailed``.

        For a loop without a time limit that hands out one ticket at a time. Nobody asks meanwhile which row is being made.
        """
        self._maker.unwatch()
        return self._make

    def _make(self, ticket: Ticket) -> Any:
        if self._metered:
            self._open_meter()
        if self._maker.plain:
            return carry_out_plainly(self._maker, ticket, self._meter)
        task = Task(ticket, Part(0, 1, 0, ticket.rows), 0, None)
        return self._carry_out(task).event

    def _carry_out(self, task: Task) -> Arrival:
        return carry_out(self._maker, task, self._start, 0, meter=self._meter)

    def _open_meter(self) -> None:
        """Open a meter of the calling thread, which may have changed or forked. Not called within a time limit, which could leave
        a descriptor open.
        """
        here = (os.getpid(), threading.get_ident())
        if here != self._meter_of:
            self._close_meter()
            with InterruptDelay():
                self._meter, self._meter_of = SingleTaskMeter(), here

    def _close_meter(self) -> None:
        if self._meter is not None:
            self._meter.close()  # idempotent: an interrupt may come before the next line
            self._meter = None

    def _carry_out_within(self, task: Task, timeout_s: float) -> Arrival:
        if not time_limit.can_limit():
            if not self._warned:
                self._warned = True
                logging.getLogger("stoker").warning(
                    "timeout is not enforced: without workers it needs the main thread and SIGALRM for itself"
                )
            return self._carry_out(task)
        self._page[ROW], self._page[PHASE] = NO_ROW, 0
        # Outside the limit once more: the alarm may interrupt the maker while it restores them.
        try:
            kept = self._maker.seeder.kept()
            with kept, kept:
                arrival = time_limit.within(timeout_s, lambda: self._carry_out(task))
        except time_limit.TimeUp as up:  # raised in our own code
            return self._failed(task, self._timed_out(task, up, timeout_s))
        event = arrival.event
        if isinstance(event, m.BatchFailed) and isinstance(event.receipt.heap, time_limit.TimeUp):
            return self._failed(task, self._timed_out(task, event.receipt.heap, timeout_s))
        return arrival

    def _failed(self, task: Task, error: WorkerTimeout) -> Arrival:
        key = (task.ticket.seq, task.attempt, task.part.number)
        failed = m.BatchFailed(*key, 0, None, None, Receipt(flags=HEAP, heap=error), Spans())
        return Arrival(task.ticket.epoch, failed)

    def _timed_out(self, task: Task, up: time_limit.TimeUp, timeout_s: float) -> WorkerTimeout:
        """Return the error that torch would raise with workers, with the stack of the slow code."""
        frames = traceback.extract_tb(up.__traceback__)[:-1]  # without the frame of the alarm
        users = next((at for at, frame in enumerate(frames) if not is_stoker(frame.filename)), 0)
        stack = [
            f'File "{frame.filename}", line {frame.lineno} in {frame.name}'
            for frame in reversed(frames[max(users, len(frames) - _FRAMES) :])
        ]
        where = place(task.ticket, self._page[ROW], collating=self._page[PHASE] == COLLATING)
        lines = [f"DataLoader timed out after {timeout_s:g} seconds\n  this process was on {where}", *stack]
        text = "\n    ".join(lines)
        if self._maker.spec.iterable and _cut_a_generator(up):
            text += "\n  a generator ends when it is interrupted: this stream has no further samples"
        return WorkerTimeout(text)

    def withdraw(self) -> list[Arrival]:
        back = [_withdrawn(task) for task in self._tasks]
        self._tasks.clear()
        return back

    def activities(self) -> list[WorkerActivity]:
        return []

    def stack(self, worker: int) -> list[str]:
        return []

    def dismiss(self, epoch: int) -> None:
        return None

    def starting(self) -> list[tuple[int, int]]:
        return []

    def remember(self, worker: int, resume: Resume) -> None:
        return None

    def resume_at(self, worker: int, resume: Resume) -> None:
        self._maker.resume_at(resume)

    def trim(self) -> list[Arrival]:
        trim.release_caches(self._maker.spec.dataset)
        return []

    def memory(self, *, sizes: bool = True) -> list[WorkerMemory]:
        return []

    def cache_counts(self) -> tuple[int, ...]:
        return cache_counts([self._page])

    def retire(self, worker: int | None) -> None:
        return None

    def close(self) -> None:
        self._tasks.clear()
        self._close_meter()


def _withdrawn(task: Task) -> Arrival:
    return Arrival(task.ticket.epoch, m.Withdrawn(task.ticket.seq, task.attempt, task.part.number))


def _cut_a_generator(up: time_limit.TimeUp) -> bool:
    """Whether the alarm interrupted a generator of the user."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(up.__traceback__)]
    return any(code.co_flags & inspect.CO_GENERATOR for code in codes if not is_stoker(code.co_filename))
