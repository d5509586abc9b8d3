"""Runs workers as threads: no copies and no processes; right for I/O and for code that releases the GIL.

All threads share one dataset. Global generators belong to the trainer's threads too, so workers leave them alone. Only OpenCV's
generator is seeded, because every thread has its own.
"""

from __future__ import annotations

import errno
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from torch.utils.data import default_collate, default_convert

from stoker._host.code_location import is_stoker
from stoker._runtime.executors.base import HEAP, Arrival, IterationStart, WorkerActivity, WorkerMemory
from stoker._runtime.executors.in_process import carry_out
from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.executors.kept_memory import KeptMemory
from stoker._runtime.executors.kept_samples import KeptSamples, OwnBatchMaker
from stoker._runtime.executors.turn import Turn
from stoker._runtime.protocol.status_page import (
    COLLATING,
    EPOCH,
    IDLE,
    MAX_WORKERS,
    PHASE,
    PID,
    ROW,
    RUN,
    WORDS,
    StatusPage,
    begin_task,
    cache_counts,
)
from stoker._runtime.protocol.worker_spec import Resume, WorkerSpec
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Receipt, Spans, Task
from stoker._runtime.worker import collation, context, trim
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView
from stoker._runtime.worker.cpu_meter import CpuMeter
from stoker.errors import coded

CLOSE_S = 1.5


class ThreadHandle:
    """A worker thread with the attributes of a process."""

    pid: int | None = None
    exitcode: int | None = None

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def ident(self) -> int | None:
        """The interpreter's number of this thread."""
        return self._thread.ident

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        if self._thread.ident is not None:  # an interrupt may come while it is started
            self._thread.join(timeout)

    def terminate(self) -> None:
        """Do nothing: a thread cannot be ended from outside. It leaves after its current sample."""


class ThreadExecutor:
    """Threads that share one queue, or have one each when tasks are bound to workers."""

    shared_memory = False
    eager = True

    def __init__(self, spec: WorkerSpec, *, bound: bool) -> None:
        self.guard = InterruptGuard()
        collation.install()
        self._turn = Turn()
        self._kept_samples = KeptSamples(self._turn)
        self._kept_memory: KeptMemory | None = None
        if spec.collate_fn is not default_collate:
            lasting = spec.collate_fn is not default_convert
            self._kept_memory = KeptMemory(spec.collate_fn, self._turn, lasting=lasting)
            spec = replace(spec, collate_fn=self._kept_memory)
        self._spec = spec
        self._bound = bound
        self._shared: SimpleQueue[tuple[Task, int] | None] = SimpleQueue()
        self._own: dict[int, SimpleQueue[tuple[Task, int] | None]] = {}
        self._arrivals: SimpleQueue[Arrival | None] = SimpleQueue()
        self._handles: dict[int, ThreadHandle] = {}
        self._start = IterationStart(0, 0)
        self._epoch = [0] * WORDS
        self._pages: dict[int, Any] = {}
        self._at_work: dict[int, tuple[Task, int]] = {}
        self._resumes: dict[int, Resume] = {}
        self._last_counts = cache_counts(())
        self._arrived: list[Arrival] = []
        """Taken from the queue, and not yet returned. An interrupt loses none of them."""
        self._closed = self._counted = self._gone = self._woken = False
        # Last: if the constructor fails before, nobody closes it.
        self._status = _page() if spec.metered else None

    @property
    def workers(self) -> Sequence[Any]:
        return [self._handles[worker] for worker in sorted(self._handles)]

    @property
    def refills_samples(self) -> bool:
        """Whether ``__getitem__`` was found to return memory that it fills again. Asked by ``stoker tune``."""
        return self._kept_samples.found

    def begin(self, start: IterationStart) -> None:
        self._start = start
        self._epoch[EPOCH] = start.epoch
        if self._status is not None:
            self._status.control[EPOCH] = start.epoch
            self._status.control[RUN] = start.run

    def agree(self, layout: int) -> None:
        return None

    def spawn(self, worker: int) -> None:
        queue = self._queue(worker)
        on_page = self._status is not None and worker < MAX_WORKERS
        if worker not in self._pages:  # a successor adds to what its predecessor's caches did
            self._pages[worker] = self._status.row(worker) if self._status and on_page else [0] * WORDS
        thread = threading.Thread(
            target=self._run, args=(worker, queue), name=f"stoker-worker-{worker}", daemon=True
        )
        # This comes first, because an interrupt in ``start`` leaves a thread behind.
        self._handles[worker] = ThreadHandle(thread)
        try:
            thread.start()
        except RuntimeError as error:  # the system's limit on threads
            del self._handles[worker]
            raise OSError(errno.EAGAIN, f"worker thread {worker} cannot start: {error}") from error

    def submit(self, task: Task) -> None:
        self._queue(task.worker).put((task, time.monotonic_ns()))

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        arrived, queue = self._arrived, self._arrivals
        # One call takes and keeps: an interrupt between the two would lose an arrival, and the loop would wait for it.
        with suppress(Empty):
            if not arrived and timeout_s != 0 and not self._woken:
                arrived.extend(islice(iter(partial(queue.get, timeout=timeout_s), None), 1))
            arrived.extend(iter(queue.get_nowait, None))
        if not arrived:
            return []
        self.guard.hold()
        found, self._arrived = arrived, []
        for _, event in found:
            if type(event) is m.WorkerLost:  # its thread is about to end
                self._handles.pop(event.worker).join()
        return found

    def wake(self) -> None:
        self._woken = True
        self._arrivals.put(None)

    def withdraw(self) -> list[Arrival]:
        back: list[Arrival] = []
        leaving = 0
        for queue in (self._shared, *self._own.values()):
            while True:
                try:
                    found = queue.get_nowait()
                except Empty:
                    break
                if found is None:
                    leaving += 1
                else:
                    task = found[0]
                    key = (task.ticket.seq, task.attempt, task.part.number)
                    back.append(Arrival(task.ticket.epoch, m.Withdrawn(*key)))
        if not self._closed and not self._bound:
            for _ in range(leaving):
                self._shared.put(None)
        return back

    def activities(self) -> list[WorkerActivity]:
        now_ns = time.monotonic_ns()
        seen = []
        for worker, (task, since_ns) in list(self._at_work.items()):
            ticket, page = task.ticket, self._pages[worker]
            place = (ticket.epoch, ticket.seq, task.part.number, page[ROW], now_ns - since_ns)
            seen.append(WorkerActivity(worker, 0, *place, page[PHASE] == COLLATING))
        return seen

    def stack(self, worker: int) -> list[str]:
        handle = self._handles.get(worker)
        frame = sys._current_frames().get(handle.ident or -1) if handle is not None else None
        if handle is None or frame is None:
            return ["(its thread has ended)"]
        holder = self._turn.awaited_by(handle.ident, frame)
        if holder is None:
            return _users_frames(frame)
        (other,) = [number for number, each in list(self._handles.items()) if each.ident == holder]
        what = (
            "leaves collate_fn, which"
            if KeptMemory.is_called_in(frame.f_back)
            else "has made its samples: this"
        )
        waits = f"(waits until worker thread {other} {what} runs on one thread at a time)"
        inside = sys._current_frames().get(holder)
        return [waits] if inside is None else [waits, *_users_frames(inside)]

    def dismiss(self, epoch: int) -> None:
        return None

    def starting(self) -> list[tuple[int, int]]:
        return []

    def remember(self, worker: int, resume: Resume) -> None:
        return None

    def resume_at(self, worker: int, resume: Resume) -> None:
        self._resumes[worker] = resume

    def trim(self) -> list[Arrival]:
        if not self._at_work:  # a sample of an old epoch may still be in progress
            trim.release_caches(self._spec.dataset)
        return self.wait(0)

    def memory(self, *, sizes: bool = True) -> list[WorkerMemory]:
        return []

    def cache_counts(self) -> tuple[int, ...]:
        if self._closed:
            return self._last_counts
        return cache_counts(list(self._pages.values()))

    def retire(self, worker: int | None) -> None:
        self._queue(worker).put(None)

    def close(self) -> None:
        if self._gone:
            return
        if not self._counted:
            self._last_counts = self.cache_counts()
        self._closed = True
        self._epoch[EPOCH] = -1
        self.withdraw()
        for worker in self._handles:
            self._queue(worker).put(None)
        deadline = time.monotonic() + CLOSE_S
        for handle in self._handles.values():
            handle.join(max(0.0, deadline - time.monotonic()))
        if not self._counted:  # rows may be closed when an interrupted close comes again
            self._last_counts = cache_counts(list(self._pages.values()))
            self._counted = True
        if self._status is not None:
            for worker, page in self._pages.items():
                thread = self._handles.get(worker)
                if isinstance(page, memoryview) and (thread is None or not thread.is_alive()):
                    page.release()  # frames of a kept exception may refer to it
            self._status.close()
        self._gone = True  # not earlier: whoever was interrupted in here comes again

    def _queue(self, worker: int | None) -> SimpleQueue[tuple[Task, int] | None]:
        if not self._bound or worker is None:
            return self._shared
        return self._own.setdefault(worker, SimpleQueue())

    def _run(self, worker: int, queue: SimpleQueue[tuple[Task, int] | None]) -> None:
        spec = self._spec
        failed: BaseException | None = None
        maker: BatchMaker | None = None
        try:
            count = max(spec.num_workers, worker + 1)  # as in a process
            context.set_thread_info(worker, count, self._start.seed + worker, spec.dataset)
            resume = self._resumes.pop(worker, None)
            watch = StatusView(self._pages[worker], self._epoch)
            options: dict[str, Any] = {"shared": True, "keeps_state": True, "resume": resume, "watch": watch}
            maker = OwnBatchMaker(self._turn, self._kept_samples, self._kept_memory, spec, worker, **options)
            if spec.worker_init_fn is not None:
                try:
                    spec.worker_init_fn(worker)
                except Exception as error:
                    coded(error, "STK810")
                    raise
        except BaseException as error:
            failed = error
        page = self._pages[worker]
        page[PID] = threading.get_native_id()  # the system's number of this thread
        meter = CpuMeter(page) if spec.metered else None
        while True:
            found = queue.get()
            if found is None or self._closed:
                break
            task, dispatched_ns = found
            if task.ticket.epoch != self._start.epoch:
                key = (task.ticket.seq, task.attempt, task.part.number)
                self._arrivals.put(Arrival(task.ticket.epoch, m.Withdrawn(*key)))
            elif failed is not None or maker is None:
                self._arrivals.put(self._refuse(task, worker, failed))
                # A new object: the old one refers to frames that caught it, and would keep the iterator alive.
                failed = (
                    RuntimeError(f"this worker could not start: {failed!r}") if failed is not None else None
                )
            else:
                self._arrivals.put(self._carry_out(maker, task, worker, meter, dispatched_ns))
            del task, found
        if meter is not None:
            meter.close()
        page[PID] = 0
        if not self._closed:
            self._arrivals.put(Arrival(-1, m.WorkerLost(worker, expected=True, left=True)))

    def _carry_out(
        self, maker: BatchMaker, task: Task, worker: int, meter: CpuMeter | None, dispatched_ns: int
    ) -> Arrival:
        page, ticket, now_ns = self._pages[worker], task.ticket, time.monotonic_ns()
        begin_task(page, ticket.epoch, ticket.seq, task.attempt, task.part.number, now_ns)
        self._at_work[worker] = (task, now_ns)
        try:
            return carry_out(
                maker, task, self._start, worker, measure_size=True, meter=meter, dispatched_ns=dispatched_ns
            )
        except BaseException as error:  # such as SystemExit: the consumer sees it, as without workers
            return self._refuse(task, worker, error)
        finally:
            page[PHASE] = IDLE
            del self._at_work[worker]

    @staticmethod
    def _refuse(task: Task, worker: int, error: BaseException | None) -> Arrival:
        key = (task.ticket.seq, task.attempt, task.part.number)
        receipt = Receipt(flags=HEAP, heap=error)
        return Arrival(task.ticket.epoch, m.BatchFailed(*key, worker, None, None, receipt, Spans()))


def _page() -> StatusPage | None:
    """Make a status page for tools that watch; None if it cannot be made, because nothing else needs it."""
    with suppress(OSError):
        return StatusPage.create()
    return None


def _users_frames(frame: FrameType) -> list[str]:
    """The frames of the user's own code, the innermost first."""
    users: list[str] = []
    for each in reversed(traceback.extract_stack(frame)):
        if users and is_stoker(each.filename):  # from here on, frames are always the same
            break
        users.append(f'File "{each.filename}", line {each.lineno} in {each.name}')
    return users
