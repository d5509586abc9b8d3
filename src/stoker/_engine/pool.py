"""A pool: workers, their arena and its slots. It serves one iteration at a time and may outlive many."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from stoker._core import messages as m
from stoker._core.scheduler import Scheduler
from stoker._core.slots import SlotTable
from stoker._engine import lifecycle
from stoker._engine.handoff import Handoff
from stoker._executors import descriptors
from stoker._executors.base import Arrival, Executor, Start
from stoker._executors.inline import InlineExecutor
from stoker._executors.process import ProcessExecutor
from stoker._executors.thread import ThreadExecutor
from stoker._share.shipment import Shipment
from stoker._transports.arena import Arena
from stoker._worker.spec import WorkerSpec

_TRIM_AT = 32
"""Leases that end at once make it worth looking for memory to give back; it is also done at the end of an iteration."""

ExecutorKind = Literal["process", "thread", "inline"]


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """How to build a pool. ``context`` is a multiprocessing context, for processes only; ``shipment`` is the spec, packed."""

    spec: WorkerSpec
    kind: ExecutorKind
    workers: int
    bound: bool
    context: Any = None
    budget_bytes: int | None = None
    shipment: Shipment | None = None


class Pool:
    """Owner of an executor and an arena. Used on the thread that iterates; inert in forked children.

    It answers to the names by which other libraries reach into torch's iterators: ``_workers`` and ``_shutdown_workers``.
    """

    def __init__(self, plan: PoolPlan) -> None:
        self.plan = plan
        self.slots = SlotTable()
        self.budget_bytes = 0
        if plan.kind == "process":
            self.budget_bytes = plan.budget_bytes or psutil.virtual_memory().available // 4
        self.arena: Arena | None = None
        try:
            if plan.kind == "process":
                descriptors.occupy_standard()
                with descriptors.may_run_out("the arena"):
                    self.arena = Arena()
            self.executor = _executor(plan, self.arena)
        except BaseException:
            if self.arena is not None:
                self.arena.close()
            if plan.shipment is not None:
                plan.shipment.close()
            raise
        self.handoff = Handoff(
            self.slots, self.arena, self.executor.agree, self.executor.remember, plan.spec.on_bad_sample
        )
        self.epoch = 0
        self.row_ns = 0.0
        self.keep_slots = _TRIM_AT
        self.busy = False
        self.closed = False
        self._claiming = threading.Lock()
        self._started = False
        self._children = 0
        self._child_fds: dict[int, int] = {}
        self.owner_pid = os.getpid()
        self._schedulers: dict[int, Scheduler] = {}
        lifecycle.register(self)

    @property
    def _workers(self) -> Sequence[Any]:
        return self.executor.workers

    def _shutdown_workers(self) -> None:
        self.close()

    def reserve(self) -> bool:
        """Claim the pool for one iteration, on any thread; False when it serves another one or is closed."""
        with self._claiming:
            if self.busy or self.closed:
                return False
            self.busy = True
            return True

    def begin(self, scheduler: Scheduler, seed: int, pipe_seed: int) -> int:
        """Take on an iteration; its epoch number."""
        self.epoch += 1
        self.busy = True
        self._schedulers[self.epoch] = scheduler
        self.executor.begin(Start(self.epoch, seed, pipe_seed))
        return self.epoch

    def launch(self) -> None:
        """Start the workers, the first time. Tasks may be waiting for them already."""
        if not self._started:
            self._started = True
            try:
                with lifecycle.launching():
                    for worker in range(self.plan.workers):
                        self.executor.spawn(worker)
            except BaseException:
                self.close()  # the loader would keep a pool without workers, and wait for them
                raise

    def end(self, epoch: int) -> None:
        """The iteration is over, by exhaustion or because nobody wants more. What is still on its way is dropped as it comes."""
        self.busy = False
        scheduler = self._schedulers.get(epoch)
        if scheduler is None or self.closed:
            return
        self.row_ns = scheduler.row_ns
        self.keep_slots = 2 * scheduler.window
        scheduler.handle(m.CloseAsked())
        self.executor.begin(Start(-1, 0))
        for arrival in self.executor.withdraw():
            self.route(arrival)
        if scheduler.drained:
            del self._schedulers[epoch]
        self.reclaim()
        self._trim()

    def spawn(self, worker: int) -> m.WorkerLost | None:
        """Start a replacement or an addition. One that the system refuses is lost before it started."""
        if self.closed:
            return None
        try:
            with lifecycle.launching():
                self.executor.spawn(worker)
        except OSError as error:
            return m.WorkerLost(worker, reason=str(error), started=False, refused=True)
        return None

    def route(self, arrival: Arrival) -> list[m.Command]:
        """Give an arrival to the iteration it belongs to; the commands of the one that is running."""
        epoch, event = arrival
        scheduler = self._schedulers.get(epoch)
        if scheduler is not None:
            commands = scheduler.handle(event)
            if epoch != self.epoch and scheduler.drained:
                del self._schedulers[epoch]
            return commands
        if epoch >= 0:
            return []
        return self._route_to_all(event)

    def _route_to_all(self, event: m.Event) -> list[m.Command]:
        """What concerns workers and slots, not one iteration."""
        if isinstance(event, m.Held):
            self.slots.hold(*event)
        elif isinstance(event, m.Unheld):
            self.slots.unhold(*event)
        commands: list[m.Command] = []
        older = event
        if isinstance(event, m.WorkerLost):
            self.slots.forget_worker(event.worker)
            # Tickets are numbered per iteration: what it was working on says nothing to earlier ones.
            older = event._replace(claimed=None, queued=frozenset())
        if isinstance(event, m.WorkerLost | m.WorkerUp):
            for number in list(self._schedulers):
                scheduler = self._schedulers[number]
                if number == self.epoch and self.busy:
                    commands = scheduler.handle(event)
                else:
                    scheduler.handle(older)
                    if scheduler.drained:
                        del self._schedulers[number]
        return commands

    def reclaim(self) -> None:
        """Take back the slots of leases that ended. Memory of slots that are no longer needed goes back to the system."""
        arena, slots = self.arena, self.slots
        if arena is None:
            return
        if self._child_fds:
            self._bury_children()
        released = arena.released
        many = len(released) >= _TRIM_AT
        while released:
            slots.release(released.popleft())
        if many:
            self._trim()

    def _trim(self) -> None:
        """Give back the memory of free slots beyond twice the window: somebody kept batches and let them go."""
        if self.arena is not None:
            for index in self.slots.coldest(self.keep_slots):
                self.arena.trim(index)
            for index in self.slots.forget_retired():
                self.arena.trim(index)  # whoever may still write there writes for nobody
                self.arena.unmap(index)

    def leases(self) -> int:
        """How many slots the user reads from. Called around forks, on the forking thread."""
        return self.slots.leased

    def forked(self, child_fd: int) -> None:
        """A fork that is not ours: the child reads what is leased now until ``child_fd`` says that it is gone."""
        self._children += 1
        holder = -self._children  # worker ids are not negative
        self.slots.hold_leased(holder)
        if child_fd >= 0:
            os.set_blocking(child_fd, False)
            descriptors.keep_private(child_fd)
            self._child_fds[holder] = child_fd

    def _bury_children(self) -> None:
        """Give back the slots of forked children that are gone."""
        for holder, fd in list(self._child_fds.items()):
            try:
                gone = os.read(fd, 1) == b""
            except BlockingIOError:
                continue
            if gone:
                descriptors.close_private(self._child_fds.pop(holder))
                self.slots.forget_worker(holder)

    def inherited(self) -> None:
        """We are in a forked child: workers and channels are the parent's, and their descriptors are closed or another's here."""
        if self.plan.kind != "inline":
            self.closed = True

    def close(self) -> None:
        """End workers and give everything back, within the executor's deadline. Idempotent; nothing in a forked child."""
        if self.closed or os.getpid() != self.owner_pid:
            return
        self.closed = True
        try:
            self.executor.close()
        finally:
            for fd in self._child_fds.values():
                descriptors.close_private(fd)
            self._child_fds.clear()
            if self.arena is not None:
                self.arena.close()

    def __del__(self, _getpid: Callable[[], int] = os.getpid) -> None:
        if getattr(self, "owner_pid", None) == _getpid():
            self.close()


def _executor(plan: PoolPlan, arena: Arena | None) -> Executor:
    if plan.kind == "inline":
        return InlineExecutor(plan.spec)
    if plan.kind == "thread":
        return ThreadExecutor(plan.spec, bound=plan.bound)
    assert arena is not None
    return ProcessExecutor(plan.spec, plan.context, arena, bound=plan.bound, shipment=plan.shipment)
