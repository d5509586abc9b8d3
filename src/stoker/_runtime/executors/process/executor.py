"""Runs workers as processes that share memory with the parent.

    parent ── tasks (message socket, one for all or one per bound worker) ──► workers
    parent ◄── result headers (one pipe, atomic writes) ───────────────────── workers
    parent ◄── notes (log records, warnings, prints) ───────────────────────── workers
    parent ──  a lifeline per worker ends it with the parent; a pidfd per worker reports its death

One epoll waits for results, notes and deaths. There is no lock and no queue that a killed process could leave held.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.executors.base import HEAP, Arrival, IterationStart, WorkerActivity, WorkerMemory
from stoker._runtime.executors.interrupt_delay import InterruptDelay
from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.executors.process import crash_report, forker, launcher, worker_memory
from stoker._runtime.executors.process.channels import ResultPipe, TaskChannel, lifeline, note_sockets
from stoker._runtime.executors.process.result_decoder import ResultDecoder
from stoker._runtime.executors.process.spawner import Spawner
from stoker._runtime.executors.process.worker_handle import WorkerHandle
from stoker._runtime.protocol import log_forwarding, parent_descriptors, stacks, status_page, wire
from stoker._runtime.protocol.worker_spec import Resume, WorkerSpec
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Receipt, Spans, Task
from stoker._runtime.transport.arena import Arena
from stoker._runtime.worker.collate_errors import note_indices
from stoker._runtime.worker.process import main, process_setup

GRACE_S = 1.0
"""How long busy workers may take to finish their current sample when the pool closes."""

_JOIN_S = 1.0

_NEWS_S = 0.05
"""How long to sleep at most while the forker makes workers: another thread may have read its news."""

_clock = time.monotonic_ns
_WAKE = wire.pack_result(wire.VERSION, wire.ResultKind.WAKE, *(0,) * (len(wire.ResultHeader._fields) - 2))


class ProcessExecutor:
    """Processes that take tasks from one channel when idle, or from a channel each when ``bound``."""

    shared_memory = True
    eager = True

    def __init__(
        self,
        spec: WorkerSpec,
        context: Any,
        arena: Arena,
        *,
        bound: bool,
        packed_spec: SpecPickle | None = None,
    ) -> None:
        if not hasattr(select, "epoll"):
            raise RuntimeError(
                f"stoker's worker processes need Linux, and this system is {sys.platform}: use executor='thread' or num_workers=0"
            )
        self._oom_detector = crash_report.OomDetector()
        self._spec = spec
        self._context = context
        self._arena = arena
        self._bound = bound
        self._owner_pid = os.getpid()
        self._shared: TaskChannel | None = None
        self._own: dict[int, TaskChannel] = {}
        with contextlib.ExitStack() as undo:  # descriptors may run out at any of these
            if not bound:
                self._shared = TaskChannel()
                undo.callback(self._shared.close)
            self._results = ResultPipe()
            undo.callback(self._results.close)
            self._note_socket, self._note_fd = note_sockets()
            undo.callback(os.close, self._note_fd)
            undo.callback(self._note_socket.close)
            with parent_descriptors.may_run_out("a pool"):
                self._status = status_page.StatusPage.create()
                undo.callback(self._status.close)
                self._poll = select.epoll()
            undo.pop_all()
        self._notes = log_forwarding.NoteReader(self._note_socket)
        self._control = self._status.control
        self._poll.register(self._results.read_fd, select.EPOLLIN)
        self._poll.register(self._note_socket.fileno(), select.EPOLLIN)
        self._handles: dict[int, WorkerHandle] = {}
        self._decoder = ResultDecoder(self._handles, arena)
        self._by_pidfd: dict[int, int] = {}
        self._all: dict[int, Any] = {}
        self._known: set[int] = set()
        self._lost_at_start: list[int] = []
        self._refused: list[Arrival] = []
        self._spawner = Spawner(context, spec, packed_spec)
        self._forker: forker.Forker | None = None
        self._start = IterationStart(0, 0)
        self._resumes: dict[int, Resume] = {}
        self._trims = 0
        self._memory_reader = worker_memory.MemoryReader()
        self.guard = InterruptGuard()
        self._closed = self._gone = self._woken = False
        self._said_goodbye = False

    @property
    def workers(self) -> Sequence[Any]:
        return [self._all[worker] for worker in sorted(self._all)]

    def begin(self, start: IterationStart) -> None:
        self._start = start
        self._decoder.begin(start.epoch)
        self._resumes.clear()
        if start.revision:
            self._control[status_page.REVISION] = start.revision
        self._control[status_page.EPOCH] = start.epoch
        self._control[status_page.TRIM] = 0
        self._control[status_page.RUN] = start.run or self._control[status_page.RUN]

    def agree(self, layout: int) -> None:
        self._control[status_page.LAYOUT] = layout

    def spawn_all(self, count: int) -> None:
        if count < forker.WORTHWHILE or not self._forks() or not forker.is_supported():
            for worker in range(count):
                self.spawn(worker)
            return
        self.spawn(0)  # it makes the first batch while the others come up
        made = forker.Forker(self._context, [self._boot(worker, -1) for worker in range(1, count)])
        for worker, process in made.processes.items():
            self._all[worker] = process
            self._known.add(worker)
            self._handles[worker] = WorkerHandle(process, -1, -1)
        self._poll.register(made.control_fd, select.EPOLLIN)
        self._poll.register(made.pidfd, select.EPOLLIN)
        self._forker = made

    def spawn(self, worker: int) -> None:
        ours, theirs = lifeline()
        try:
            with launcher.refusals(self._context.get_start_method()):
                process = self._spawner.start(self._boot(worker, theirs))
        except BaseException:
            parent_descriptors.close_private(ours)
            raise
        finally:
            os.close(theirs)
        self._all[worker] = process
        self._known.add(worker)
        try:
            handle = WorkerHandle(process, ours, launcher.watch(process))
        except BaseException:
            parent_descriptors.close_private(ours)  # ends the process: its death could not be noticed
            process.join(_JOIN_S)
            raise
        self._handles[worker] = handle
        if handle.pidfd < 0:
            self._lost_at_start.append(worker)
        else:
            parent_descriptors.keep_private(handle.pidfd)
            self._watch(worker, handle)
        self._spawner.catch_up()

    def _forks(self) -> bool:
        return bool(self._context.get_start_method() == "fork")

    def _watch(self, worker: int, handle: WorkerHandle) -> None:
        self._by_pidfd[handle.pidfd] = worker
        self._poll.register(handle.pidfd, select.EPOLLIN)

    def _boot(self, worker: int, lifeline_fd: int) -> main.WorkerBoot:
        if worker > status_page.MAX_WORKERS - 1:
            raise ValueError(f"num_workers may be at most {status_page.MAX_WORKERS}")
        fork = self._forks()
        late = worker in self._known or worker >= self._spec.num_workers
        if fork:
            process_setup.native_pools(len(sys.modules))
        self._status.clear(worker)
        stacks.forget(self._status.fd, worker)
        channel = self._channel(worker)
        return main.WorkerBoot(
            worker=worker,
            task_fd=channel.worker_fd,
            result_fd=self._results.write_fd,
            lifeline_fd=lifeline_fd,
            note_fd=self._note_fd,
            arena_fd=self._arena.fd,
            status_fd=self._status.fd,
            stride=self._arena.stride,
            reserve=self._arena.reserve,
            base_seed=self._start.seed,
            levels=log_forwarding.logger_levels(),
            spec=self._spec if fork else None,
            resume=self._resumes.get(worker),
            revision=self._control[status_page.REVISION] if fork else 0,
            restore=self._start.restore if fork and late else None,
        )

    def submit(self, task: Task) -> None:
        ticket, part, slot, scratch = task.ticket, task.part, task.slot, task.scratch
        assert slot is not None
        if self._control[status_page.NOTES]:
            # A consumer slower than its workers never waits, so notes are shown here.
            self._control[status_page.NOTES] = 0
            self._notes.drain()
        indices: Any = ticket.indices
        if part.count > 1:
            indices = indices[part.start : part.stop]
        with_excluded = bool(ticket.excluded or ticket.spares)
        try:
            payload = pickle.dumps((indices, ticket.excluded, ticket.spares) if with_excluded else indices, 5)
        except Exception as error:  # the batch fails in its order, as it would in a worker
            note_indices(error, indices)
            receipt = Receipt(flags=HEAP, heap=error)
            failed = m.BatchFailed(ticket.seq, task.attempt, part.number, -1, slot, scratch, receipt, Spans())
            self._refused.append(Arrival(ticket.epoch, failed))
            return
        self._arena.prepare(slot.index)
        flags = wire.INLINE | wire.WITH_EXCLUDED if with_excluded else wire.INLINE
        if len(payload) > wire.INLINE_BYTES:
            flags &= ~wire.INLINE
            self._arena.put(scratch.index if scratch is not None else slot.index, payload)
        if scratch is None:
            scratch_index, scratch_generation = wire.NO_SLOT, 0
        else:
            scratch_index, scratch_generation = scratch
            self._arena.prepare(scratch_index)
        start = self._start
        header = wire.pack_task(
            wire.VERSION, 1, flags, ticket.epoch, ticket.seq, ticket.position, task.attempt, part.number, part.count,
            part.start, part.stop, ticket.rows, slot.index, slot.generation, scratch_index, scratch_generation,
            ticket.seed, start.pipe_seed, task.pull, len(payload), _clock(),
        )  # fmt: skip
        message = header + payload if flags & wire.INLINE else header
        channel = self._channel(task.worker)
        if task.attempt and self._shared is not None:
            # A repeated task is usually the oldest, which the consumer waits for: it goes to its place in the queue.
            waiting = [*channel.take_back(), message]
            for each in sorted(waiting, key=_place):
                channel.send(each)
        else:
            channel.send(message)

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        guard = self.guard
        guard.hold()
        if self._forker is not None:
            self._meet_workers()
        data = self._results.read()
        if data:
            return self._decoder.arrivals(data)
        if self._refused:
            refused, self._refused = self._refused, []
            return refused
        if self._lost_at_start:
            return self._lost(self._lost_at_start.pop())
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            for channel in self._channels():
                channel.flush()
            left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
            if self._woken:
                left = 0.0
            more = self._forker is not None and not 0 <= left <= _NEWS_S
            guard.release()
            found = self._poll.poll(_NEWS_S if more else left)
            if not found and not more:
                return []
            guard.hold()
            if self._forker is not None:
                self._meet_workers()
            arrivals = self._collect(found)
            if arrivals or self._woken:
                return arrivals

    def wake(self) -> None:
        self._woken = True
        if not self._gone:
            self._results.write(_WAKE)

    def withdraw(self) -> list[Arrival]:
        back: list[Arrival] = []
        for channel in self._channels():
            for message in channel.take_back():
                task = wire.TaskHeader._make(wire.unpack_task(message))
                if task.kind == wire.TaskKind.MAKE:
                    back.append(Arrival(task.epoch, m.Withdrawn(task.seq, task.attempt, task.part)))
                elif not self._closed:
                    channel.send(message)
        return back

    def activities(self) -> list[WorkerActivity]:
        seen = []
        for worker in self._handles:
            row = self._status.row(worker)
            phase = row[status_page.PHASE]
            if phase != status_page.IDLE:
                pid, epoch, seq, _, part, place = row[status_page.PID : status_page.ROW + 1].tolist()
                collating = phase == status_page.COLLATING
                since_ns = _clock() - row[status_page.SINCE_NS]
                seen.append(WorkerActivity(worker, pid, epoch, seq, part, place, since_ns, collating))
        return seen

    def stack(self, worker: int) -> list[str]:
        handle = self._handles.get(worker)
        if handle is None or handle.pidfd < 0:
            return [] if self._forker is None or handle is None else ["(it is still starting)"]
        pid = handle.process.pid
        row = self._status.row(worker)
        if row[status_page.PID] != pid:
            return ["(it is still starting)"]
        if not row[status_page.ARMED]:
            return []
        frames = crash_report.stack_of(handle.pidfd, self._status.fd, worker)
        return frames or [f"(no stack: {crash_report.state_of(pid) or 'it does not answer'})"]

    def dismiss(self, epoch: int) -> None:
        for worker, handle in self._handles.items():
            row = self._status.row(worker)
            if (
                row[status_page.PHASE] != status_page.IDLE
                and row[status_page.W_EPOCH] != epoch
                and handle.pidfd >= 0
            ):
                handle.leaving = True
                handle.send_signal(signal.SIGKILL)

    def starting(self) -> list[tuple[int, int]]:
        return [
            (worker, handle.process.pid if handle.pidfd >= 0 else 0)
            for worker, handle in self._handles.items()
            if not handle.started
        ]

    def remember(self, worker: int, resume: Resume) -> None:
        if resume.epoch == self._start.epoch:
            self._resumes[worker] = resume

    resume_at = remember  # the same before a worker starts

    def trim(self) -> list[Arrival]:
        self._trims += 1
        self._memory_reader.forget()
        worker_memory.order_trim(
            self._status, self._trims, [self._channel(worker) for worker in self._handles]
        )
        return self._decoder.arrivals(self._results.read())

    def memory(self, *, sizes: bool = True) -> list[WorkerMemory]:
        handles = {worker: handle for worker, handle in list(self._handles.items()) if handle.pidfd >= 0}
        return self._memory_reader.read(self._status, handles, sizes=sizes)

    def cache_counts(self) -> tuple[int, ...]:
        return self._status.cache_counts()

    def retire(self, worker: int | None) -> None:
        leave = wire.pack_task(wire.VERSION, wire.TaskKind.LEAVE, *(0,) * (len(wire.TaskHeader._fields) - 2))
        self._channel(worker).send(leave)

    def hang_up(self) -> None:
        if not self._closed and os.getpid() == self._owner_pid:
            self._notes.drain()  # what workers printed in this epoch is shown before the epoch is over
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._said_goodbye:
            return
        self._said_goodbye = True
        # Who is in the middle of a batch stops after its current sample.
        self._control[status_page.EPOCH] = -1
        if self._forker is not None:
            self._forker.stop()
        self.withdraw()
        for channel in self._channels():
            channel.hang_up()

    def close(self) -> None:
        if self._gone or os.getpid() != self._owner_pid:
            return
        self._closed = True
        try:
            self._say_goodbye()
            self._end_processes()
        except BaseException:  # interrupted by the user: end the workers at once
            self._kill_all()
            raise
        finally:
            try:
                self._give_back()
            except BaseException:
                self._give_back()
                raise

    def _give_back(self) -> None:
        """Close everything. Idempotent, and may begin anew after an interrupt."""
        if self._gone:
            return
        if self._note_fd >= 0:
            self._notes.drain()
        for channel in self._channels():
            channel.close()
        self._results.close()
        note_fd, self._note_fd = self._note_fd, -1
        if note_fd >= 0:
            os.close(note_fd)
        self._note_socket.close()
        self._control.release()
        self._status.close()
        self._poll.close()
        self._spawner.close()
        self._gone = True

    # Inside

    def _channel(self, worker: int | None) -> TaskChannel:
        """Return the channel of a worker; it may be older than the worker."""
        if self._shared is not None:
            return self._shared
        assert worker is not None
        channel = self._own.get(worker)
        if channel is None:
            channel = self._own[worker] = TaskChannel()
        return channel

    def _channels(self) -> Sequence[TaskChannel]:
        return [self._shared] if self._shared is not None else list(self._own.values())

    def _meet_workers(self) -> None:
        """Take over the workers that the forker has made. Start those myself that it could not make."""
        made = self._forker
        assert made is not None
        failed: list[int] = []
        with InterruptDelay():
            for birth in made.births():
                if birth.pid < 0:
                    failed.append(birth.worker)
                    continue
                handle = self._handles[birth.worker]
                handle.lifeline_fd, handle.pidfd = birth.lifeline_fd, birth.pidfd
                self._watch(birth.worker, handle)
            if made.over:
                self._poll.unregister(made.control_fd)
                self._poll.unregister(made.pidfd)
                failed += made.unborn
                made.close()
                self._forker = None
            for worker in failed:
                del self._handles[worker]
                if self._closed or self._said_goodbye:
                    continue
                try:
                    self.spawn(worker)
                except OSError as error:
                    loss = m.WorkerLost(worker, reason=str(error), started=False, refused=True)
                    self._refused.append(Arrival(-1, loss))

    def _collect(self, found: list[tuple[int, int]]) -> list[Arrival]:
        arrivals: list[Arrival] = []
        dead: list[int] = []
        for fd, _ in found:
            if fd == self._results.read_fd:
                arrivals += self._decoder.arrivals(self._results.read())
            elif fd in self._by_pidfd:
                dead.append(self._by_pidfd[fd])
            elif fd == self._note_socket.fileno():
                self._notes.drain()
        for worker in dead:
            arrivals += self._lost(worker)
        return arrivals

    def _lost(self, worker: int) -> list[Arrival]:
        """Report a dead worker: first all of its messages, then the claims of the living, then the loss."""
        handle = self._handles[worker]
        arrivals: list[Arrival] = []
        while data := self._results.read():
            arrivals += self._decoder.arrivals(data)  # it may have reported that it started, or leaves
        del self._handles[worker]
        self._forget(handle)
        queued: set[tuple[int, int, int]] = set()
        if self._shared is not None:
            messages = self._shared.take_back()
            for message in messages:
                task = wire.TaskHeader._make(wire.unpack_task(message))
                if task.kind == wire.TaskKind.MAKE and task.epoch == self._start.epoch:
                    queued.add((task.seq, task.attempt, task.part))
                self._shared.send(message)
        else:
            self._own[worker].take_back()  # all of its tasks are issued again, in order, by the scheduler
        for living in self._handles:
            claim = self._status.claim(living)
            if claim is not None:
                arrivals.append(Arrival(claim[0], m.Claimed(living, *claim[1:])))
        claim = self._status.claim(worker)
        claimed = claim[1:] if claim is not None and claim[0] == self._start.epoch else None
        loss = m.WorkerLost(
            worker,
            claimed,
            frozenset(queued),
            handle.leaving,
            *self._describe(worker, handle),
            left=handle.left,
            by_host=handle.by_host,
        )
        arrivals.append(Arrival(-1, loss))
        if handle.leaving:
            self._all.pop(worker, None)
        if handle.left:
            self._status.clear(worker)  # tools that watch see which workers there are
        return arrivals

    def _describe(self, worker: int, handle: WorkerHandle) -> tuple[str, bool, int, str, bool]:
        return crash_report.describe_loss(worker, handle, self._oom_detector, self._status)

    def _forget(self, handle: WorkerHandle) -> None:
        if handle.pidfd >= 0:
            self._poll.unregister(handle.pidfd)
            del self._by_pidfd[handle.pidfd]
            parent_descriptors.close_private(handle.pidfd)
            handle.pidfd = -1
        parent_descriptors.close_private(handle.lifeline_fd)
        # Another pool may have this number by now, because this runs beside the thread that iterates.
        handle.lifeline_fd = -1

    def _end_processes(self) -> None:
        """Let workers finish a sample, then end them, within one deadline. They hold nothing that could break."""
        self._await_forker()
        self._await_ends(GRACE_S)
        for how, patience_s in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 1.0)):
            for handle in self._handles.values():
                handle.send_signal(how)
            self._await_ends(patience_s)
        self._collect_statuses()

    def _await_forker(self) -> None:
        if self._forker is not None:
            self._forker.await_end()
            self._meet_workers()

    def _kill_all(self) -> None:
        self._await_forker()
        for handle in self._handles.values():
            handle.send_signal(signal.SIGKILL)
        self._collect_statuses()

    def _collect_statuses(self) -> None:
        """Collect exit statuses from the processes that started the workers, within one deadline."""
        deadline = time.monotonic() + _JOIN_S
        for handle in self._handles.values():
            handle.process.join(max(0.001, deadline - time.monotonic()))
            self._forget(handle)
        self._handles.clear()

    def _await_ends(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while self._by_pidfd:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            for fd, _ in self._poll.poll(left):
                if fd in self._by_pidfd:
                    self._forget(self._handles[self._by_pidfd[fd]])
                elif fd == self._results.read_fd:
                    self._results.read()
                else:
                    self._notes.drain()


def _place(message: bytes) -> tuple[int, int, int]:
    """Return the place of a task in the queue."""
    task = wire.TaskHeader._make(wire.unpack_task(message))
    return task.epoch, task.seq, task.part
