"""A double of an executor on another host: nothing is shared, every task and every result travels as bytes.

    parent ── heap.dumps(task) ──► socket ──► host process ──► heap.dumps(result) ──► socket ──► parent

One process stands for each remote worker. It shows what a real one (Ray, say) has to do and no more: its slots are None, and
it learns of a new epoch only from the tasks themselves and from a message.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from stoker._runtime.executors.base import HEAP, Arrival, IterationStart, WorkerActivity, WorkerMemory
from stoker._runtime.executors.in_process import carry_out
from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.protocol import failures
from stoker._runtime.protocol.worker_spec import Resume, WorkerSpec
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Receipt, Spans, Task
from stoker._runtime.worker.batch_maker import BatchMaker
from stoker.testing import heap_codec

LEAVE = b"leave"
CLOSE_S = 1.0


@dataclass(slots=True)
class _Host:
    """One remote worker: its process, the line to it, and the tasks it has been sent and not answered."""

    process: Any
    line: Connection
    owed: int = 0
    leaving: bool = False


class RemoteExecutor:
    """Tasks wait in the parent until their worker has nothing to do: what was sent cannot be taken back."""

    shared_memory = False
    eager = True

    def __init__(self, spec: WorkerSpec, *, bound: bool) -> None:
        self.guard = InterruptGuard()
        self._spec = spec
        self._bound = bound
        self._start = IterationStart(0, 0)
        self._hosts: dict[int, _Host] = {}
        self._shared: deque[Task] = deque()
        self._own: dict[int, deque[Task]] = {}

    @property
    def workers(self) -> Sequence[Any]:
        return [self._hosts[worker].process for worker in sorted(self._hosts)]

    def begin(self, start: IterationStart) -> None:
        self._start = start

    def agree(self, layout: int) -> None:
        return None

    def spawn(self, worker: int) -> None:
        context = multiprocessing.get_context("fork")
        line, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, line, self._spec, worker), daemon=True)
        process.start()
        theirs.close()
        self._hosts[worker] = _Host(process, line)

    def submit(self, task: Task) -> None:
        queue = self._shared if task.worker is None else self._own.setdefault(task.worker, deque())
        queue.append(task)

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            arrivals = self._send_out()
            if arrivals:
                return arrivals
            poll = select.poll()
            for host in self._hosts.values():
                poll.register(host.line, select.POLLIN)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            found = {fd for fd, _ in poll.poll(None if left is None else left * 1000)}
            if not found:
                return []
            for worker, host in list(self._hosts.items()):
                if host.line.fileno() in found:
                    arrivals += self._hear(worker, host)
            if arrivals:
                return arrivals

    def withdraw(self) -> list[Arrival]:
        back = [_withdrawn(task) for queue in self._queues() for task in queue]
        for queue in self._queues():
            queue.clear()
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

    def trim(self) -> list[Arrival]:
        return []

    def memory(self, *, sizes: bool = True) -> list[WorkerMemory]:
        return []

    def retire(self, worker: int | None) -> None:
        host = self._hosts[next(iter(self._hosts)) if worker is None else worker]
        for task in self._own.pop(worker, ()) if worker is not None else ():
            self._send(host, task)  # it leaves after what was given to it before
        host.leaving = True
        with contextlib.suppress(OSError):
            host.line.send_bytes(LEAVE)

    def close(self) -> None:
        self.withdraw()
        for host in self._hosts.values():
            host.line.close()
        for host in self._hosts.values():
            host.process.join(CLOSE_S)
            if host.process.is_alive():
                host.process.kill()
                host.process.join()
        self._hosts.clear()

    def _queues(self) -> list[deque[Task]]:
        return [self._shared, *self._own.values()]

    def _send_out(self) -> list[Arrival]:
        """Give every idle host its next task; those of an epoch that is over go back instead."""
        back = []
        for worker, host in self._hosts.items():
            queue = self._own.get(worker) if self._bound else self._shared
            while queue and not host.owed and not host.leaving:
                task = queue.popleft()
                if task.ticket.epoch != self._start.epoch:
                    back.append(_withdrawn(task))
                else:
                    self._send(host, task)
        return back

    def _send(self, host: _Host, task: Task) -> None:
        host.owed += 1
        with contextlib.suppress(OSError):  # it is gone: the next wait says so
            host.line.send_bytes(heap_codec.dumps((tuple(task), task.ticket, task.part, self._start)))

    def _hear(self, worker: int, host: _Host) -> list[Arrival]:
        try:
            kind, *body = heap_codec.loads(host.line.recv_bytes())
        except (EOFError, OSError):
            return [self._lost(worker, host)]
        if kind == "up":
            return [Arrival(-1, m.WorkerUp(worker))]
        host.owed -= 1
        epoch, (seq, attempt, part), payload = body
        if kind == "ended":
            return [Arrival(epoch, m.SourceEnded(seq, attempt, part, worker, None, None))]
        receipt = Receipt(flags=HEAP, heap=payload if kind == "ready" else failures.unpack(payload))
        event = (m.BatchReady if kind == "ready" else m.BatchFailed)(
            seq, attempt, part, worker, None, None, receipt, Spans()
        )
        return [Arrival(epoch, event)]

    def _lost(self, worker: int, host: _Host) -> Arrival:
        del self._hosts[worker]
        host.line.close()
        host.process.join()
        queue = self._shared if not self._bound else ()
        queued = frozenset((task.ticket.seq, task.attempt, task.part.number) for task in queue)
        if self._bound:
            self._own.pop(worker, None)  # the scheduler issues them again, in order
        reason = f"remote worker {worker} ended with exit code {host.process.exitcode}"
        return Arrival(-1, m.WorkerLost(worker, None, queued, host.leaving, reason))


def _withdrawn(task: Task) -> Arrival:
    return Arrival(task.ticket.epoch, m.Withdrawn(task.ticket.seq, task.attempt, task.part.number))


def _serve(line: Connection, parents: Connection, spec: WorkerSpec, worker: int) -> None:
    """The far side. Everything it knows came over the line."""
    parents.close()
    maker = BatchMaker(spec, worker)
    with contextlib.suppress(EOFError, OSError):
        line.send_bytes(heap_codec.dumps(("up",)))
        while (message := line.recv_bytes()) != LEAVE:
            fields, ticket, part, start = heap_codec.loads(message)
            task = Task(*fields)._replace(ticket=ticket, part=part)
            epoch, event = carry_out(maker, task, start, worker)
            key = (task.ticket.seq, task.attempt, task.part.number)
            answer: tuple[Any, ...]
            if isinstance(event, m.SourceEnded):
                answer = ("ended", epoch, key, None)
            elif isinstance(event, m.BatchReady):
                answer = ("ready", epoch, key, event.receipt.heap)
            else:
                assert isinstance(event, m.BatchFailed)
                assert isinstance(event.receipt.heap, BaseException)
                answer = ("failed", epoch, key, failures.pack(event.receipt.heap, worker))
            line.send_bytes(heap_codec.dumps(answer))
