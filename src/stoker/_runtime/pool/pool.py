"""A pool: workers, their arena and its slots. It serves one iteration at a time and may outlive many."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stoker._record.attribution import Attribution
from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.dataset_sync.sender import RevisionSender
from stoker._runtime.dataset_sync.snapshot import Snapshot
from stoker._runtime.device.stager import FencedSources
from stoker._runtime.executors import registry
from stoker._runtime.executors.base import Arrival, IterationStart, leaves_behind, starts_many, wakes
from stoker._runtime.executors.interrupt_delay import InterruptDelay
from stoker._runtime.pool import lifecycle
from stoker._runtime.pool.batch_opener import BatchOpener
from stoker._runtime.pool.cache_tally import CacheTally
from stoker._runtime.pool.forked_children import ForkedChildren
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.memory_budget import MemoryBudget
from stoker._runtime.pool.outside_compile import outside_compile
from stoker._runtime.pool.pool_plan import PoolPlan
from stoker._runtime.protocol import parent_descriptors
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import idle_keep_bytes
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.transport.arena import Arena
from stoker.errors import LoaderClosed

_TRIM_AT = 32
"""If this many leases end at once, free memory is given back, and not only at the end of the iteration."""

_TURN_S = 1.0
"""How long ``close`` waits for a thread in ``next()``. It leaves at once, unless it is in the user's sampler."""


@outside_compile
class Pool:
    """Owns an executor and an arena. Used on the thread that iterates; does nothing in forked children.

    ``persistent``: its workers stay for further iterations, and get the dataset's changes at the beginning of each. Other libraries
    use the attributes ``_workers`` and ``_shutdown_workers`` of torch's iterators, so it has them.
    """

    def __init__(self, plan: PoolPlan, *, persistent: bool = False, predecessor: Pool | None = None) -> None:
        self.plan = plan
        self.persistent = persistent
        self.workers = plan.workers
        """The wanted number of workers when the last iteration ended."""
        self.worker_ids: frozenset[int] | None = None
        """The ids of the workers that existed then; None for the first ``workers`` ids."""
        self._revisions: RevisionSender | None = None
        self._snapshot: Snapshot | None = None
        """The dataset's attributes when the epoch began, for workers that are forked in the middle of it."""
        self.slots = SlotTable()
        self._children = ForkedChildren(self.slots)
        self.fenced = FencedSources()
        """Host batches that a device may still read."""
        self.budget = MemoryBudget(plan.budget_bytes) if plan.kind.workers else None
        """None if no batch is made ahead."""
        self.arena: Arena | None = None
        try:
            if plan.kind.processes:
                with InterruptDelay():
                    parent_descriptors.occupy_standard()
                    inheritance = None if predecessor is None else predecessor.bequeath()
                    if inheritance is not None:
                        self.slots, self.arena, self._children, self.fenced = inheritance
                    else:
                        with parent_descriptors.may_run_out("the arena"):
                            self.arena = Arena()
                forks = plan.context.get_start_method() == "fork" and not plan.kind.remote
                if persistent:
                    self._revisions = RevisionSender(plan.spec.dataset, self.slots, self.arena, forks=forks)
                elif plan.grows and forks:
                    self._snapshot = Snapshot(plan.spec.dataset)
            request = registry.Request(
                plan.spec, plan.bound, self.arena, plan.context, plan.packed_spec, plan.backend, plan.grows
            )
            with InterruptDelay():
                self.executor = registry.make(plan.kind.name, request)
            self._open()
        except BaseException:
            if "executor" in vars(self):
                self.executor.close()
            if self.arena is not None:
                self.arena.close()
            if plan.packed_spec is not None:
                plan.packed_spec.close()
            raise

    def _open(self) -> None:
        """The rest of the construction. What it raises, an interrupt say, closes executor and arena."""
        plan = self.plan
        self.opener = BatchOpener(
            self.slots, self.arena, self.executor.agree, self.executor.remember, plan.spec.on_bad_sample
        )
        self.epoch = 0
        remote_from = getattr(plan.backend, "local", 0) if plan.kind.remote else None
        self.attribution = Attribution(
            workers=plan.workers, inline=not plan.kind.workers, remote_from=remote_from
        )
        """Remembers the last tasks of the workers, to attribute waits to them."""
        self.row_ns = 0.0
        self.typical_bytes = 0
        self.trim_asked = False
        """Set on any thread by ``trim``. The thread that iterates then gives free slots back."""
        self._keep_slots = _TRIM_AT
        self.busy = False
        self.closed = False
        self.turn: Any = threading.RLock()
        """Held by a thread in ``next()``: others wait for theirs, as at a queue."""
        self._claiming = threading.RLock()
        self._slim = False
        self._started = False
        self.refused = False
        """Whether its workers could not be started, which closed it."""
        self._left = False
        self._ending = threading.RLock()
        self.ended = False
        """Whether its workers have ended and were reaped."""
        self.owner_pid = os.getpid()
        self._schedulers: dict[int, Scheduler] = {}
        self._cache_tally: CacheTally | None = None
        lifecycle.register(self)

    @property
    def _workers(self) -> Sequence[Any]:
        return self.executor.workers

    def _shutdown_workers(self) -> None:
        self.close()

    def reserve(self) -> bool:
        """Claim the pool for one iteration, on any thread. False if it serves another one or is closed."""
        with self._claiming:
            if self.busy or self.closed:
                return False
            self.busy = True
            return True

    def unreserve(self) -> None:
        """Give the claim back, because the iteration could not be made."""
        self.busy = False

    def announce(self, stats: LoaderStats) -> bool:
        """Send the dataset's changes to the workers, before an iteration begins. False if that needs a new pool."""
        return self._revisions is None or self._revisions.announce(stats)

    def changed(self) -> bool:
        """Whether the dataset has changes that the workers do not have."""
        return self._revisions is not None and bool(self._revisions.snapshot.changes())

    def begin(
        self,
        scheduler: Scheduler,
        stats: LoaderStats,
        progress: Progress,
        *,
        seed: int,
        pipe_seed: int,
        run: int = 0,
    ) -> int:
        """Take on an iteration; returns its epoch number. ``run`` is the inode of the loader's run page."""
        self.opener.begin(stats, progress)
        self._cache_tally = stats.cache
        self._cache_tally.add(self.executor)
        self._keep_slots = 2 * scheduler.window
        self.epoch += 1
        self.busy = True
        self._slim = False
        self._schedulers[self.epoch] = scheduler
        revisions = self._revisions
        if revisions is None:
            as_it_is = None if self._snapshot is None else self._snapshot.restore
            self.executor.begin(IterationStart(self.epoch, seed, pipe_seed, restore=as_it_is, run=run))
        else:
            restore = revisions.snapshot.restore
            self.executor.begin(IterationStart(self.epoch, seed, pipe_seed, revisions.word, restore, run))
            revisions.give_back()
        return self.epoch

    def launch(self) -> None:
        """Start the workers, on the first call. Tasks may be waiting for them already."""
        if not self._started:
            self._started = True
            try:
                if starts_many(self.executor):
                    with lifecycle.launching():
                        self.executor.spawn_all(self.plan.workers)
                else:
                    for worker in range(self.plan.workers):
                        with lifecycle.launching():
                            self.executor.spawn(worker)
            except BaseException:
                self.refused = not self.closed  # and not closed by another thread
                self.close()  # otherwise the loader would wait for workers that do not exist
                raise

    def end(self, epoch: int) -> None:
        """The iteration is over, at its end or before. Results that arrive later are dropped."""
        try:
            scheduler = self._schedulers.get(epoch)
            if scheduler is None or self.closed:
                return
            self.row_ns = scheduler.row_ns
            self.typical_bytes = scheduler.typical_bytes
            self.workers, self.worker_ids = scheduler.target, scheduler.workers
            self._keep_slots = 2 * scheduler.window
            scheduler.handle(m.CloseAsked())
            self.executor.begin(IterationStart(-1, 0))
            for arrival in self.executor.withdraw():
                self.route(arrival)
            if scheduler.drained:
                self._schedulers.pop(epoch, None)
            self.fenced.drop_done()
            self.reclaim()
            if self.persistent:
                self._trim(idle_keep_bytes(self.budget.bytes) if self.budget is not None else 0)
        finally:
            self.busy = False  # last, because no other iteration may touch the slots before

    def spawn(self, worker: int) -> m.WorkerLost | None:
        """Start a worker in the middle of an epoch. Returns its loss if the system refuses to start it."""
        if self.closed:
            return None
        try:
            with lifecycle.launching():
                self.executor.spawn(worker)
        except OSError as error:
            return m.WorkerLost(worker, reason=str(error), started=False, refused=True)
        return None

    def resized(self, scheduler: Scheduler) -> None:
        """The running iteration changed the number of workers, or its window."""
        self.workers = scheduler.target
        self.attribution.resize(scheduler.target)
        self._keep_slots = 2 * scheduler.window

    def route(self, arrival: Arrival) -> list[m.Command]:
        """Give an arrival to its iteration. Returns the commands of the running one."""
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
        """Handle an event of a worker or a slot, which concerns all iterations."""
        if isinstance(event, m.Held):
            self.slots.hold(*event)
        elif isinstance(event, m.Unheld):
            self.slots.unhold(*event)
        commands: list[m.Command] = []
        older = event
        if isinstance(event, m.WorkerLost):
            self.slots.forget_worker(event.worker)
            # Tickets are numbered per iteration, so the claimed ticket means nothing to earlier ones.
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
        """Free the slots of leases that ended. Give memory back to the system if many did."""
        arena, slots = self.arena, self.slots
        if arena is None:
            return
        if self._children:
            self._children.release_ended()
        released = arena.released
        many = len(released) >= _TRIM_AT
        while released:
            slots.release(released.popleft())
        if self.trim_asked:
            self.trim_asked = False
            self._trim(0)
        elif many:
            self._trim()

    def _trim(self, keep_bytes: int | None = None) -> None:
        """Give the memory of free slots beyond twice the window back to the system.

        With ``keep_bytes``, also that of the other free slots, least recently used first, until so much is left.
        """
        if self.arena is None:
            return
        for index in self.slots.coldest(self._keep_slots):
            self.arena.trim(index)
        for index in self.slots.forget_retired():
            self.arena.trim(index)  # a late writer's bytes are never read
            self.arena.unmap(index)
        if keep_bytes is not None:
            self.arena.shrink(self.slots.coldest(0), keep_bytes)

    @property
    def at_work(self) -> bool:
        """Whether it is in an epoch and makes batches ahead."""
        return self.busy and not self.closed and self.budget is not None

    @property
    def undelivered_bytes(self) -> int:
        """The bytes of batches that are made, or being made, and not taken."""
        scheduler = self._schedulers.get(self.epoch) if self.busy else None
        return scheduler.undelivered_bytes if scheduler is not None else 0

    def review_budget(self, scheduler: Scheduler) -> None:
        """Bound the scheduler's undelivered bytes by the memory available now, if that is due. On the thread that iterates.

        If memory is short, all idle pools give memory back.
        """
        budget = self.budget
        if budget is None or not budget.due:
            return
        held_bytes = self.read_budget(budget)
        budget.settle()
        scheduler.allow_bytes(budget.bytes)
        if budget.short:
            self._trim(0)
            lifecycle.trim_idle()
        elif held_bytes > budget.bytes:
            self._trim(budget.bytes)

    def read_budget(self, budget: MemoryBudget) -> int:
        """Read the memory available now. Returns the bytes that this pool holds for undelivered batches."""
        held_bytes, arena = self.undelivered_bytes, self.arena
        if arena is not None:  # free slots count too: they will hold the next batches
            held_bytes = max(0, arena.resident_bytes() - arena.leased_bytes())
        budget.read(held_bytes, lifecycle.at_work())
        return held_bytes

    def trim(self) -> None:
        """Give back the memory that an idle pool does not need: free slots at once, the workers' caches when they are idle.

        Called on any thread. During an epoch, the thread that iterates gives free slots back with its next batch.
        """
        if os.getpid() != self.owner_pid:
            return
        with self._claiming:
            if self.closed:
                self._trim(0)
                return
            if self.busy:
                self.trim_asked = True
                return
            self._slim = True
            for arrival in self.executor.trim():
                self.route(arrival)
            self.fenced.drop_done()
            self.reclaim()
            self._trim(0)

    def trim_when_idle(self) -> None:
        """Trim the pool if it is idle and was not trimmed since its last epoch."""
        if not self.busy and not self._slim:
            self.trim()

    def leases(self) -> int:
        """How many slots the user holds. Called around forks, on the forking thread."""
        return self.slots.leased if os.getpid() == self.owner_pid else 0

    def forked(self, child_fd: int) -> None:
        """The user's code forked. The child may read the leased slots until ``child_fd`` reports its end."""
        self._children.add(child_fd)

    def refuse_if_closed(self) -> None:
        """Raise LoaderClosed, with the reason, if this pool makes no more batches for this process."""
        if os.getpid() != self.owner_pid:
            raise LoaderClosed(
                f"this iterator's workers belong to process {self.owner_pid}, which forked this process "
                f"({os.getpid()}): call iter(loader) again in the child"
            )
        if self.closed:
            if lifecycle.interpreter_exits() and threading.current_thread() is not threading.main_thread():
                raise SystemExit  # a daemon thread: the interpreter ends it in a moment, and prints nothing for this
            raise LoaderClosed(
                "the loader was closed while this iterator was in use: call iter(loader) again, which starts new workers"
            )

    def inherited(self) -> None:
        """This is a forked child. Workers and channels belong to the parent, and their descriptors are not valid here."""
        self.turn._at_fork_reinit()  # the thread that held it is not here
        if self._cache_tally is not None:
            self._cache_tally.after_fork()
        if self.plan.kind.workers:
            self.closed = True

    def leave(self) -> bool:
        """The last batch was taken: tell the workers to go, without waiting for them. False where that takes a ``close``.

        ``see_off`` waits for them and ``close`` also gives the memory back, unless ``bequeath`` handed it to another pool. Only
        without work under way: whoever still makes a batch may write into a slot that the heir gives out anew.
        """
        if os.getpid() != self.owner_pid or not leaves_behind(self.executor):
            return False
        with self._claiming:
            if self.closed or self._schedulers or self.slots.held_by_workers or self.fenced.lost:
                return False
            self.closed = self._left = True
        self.executor.hang_up()
        return True

    def see_off(self) -> None:
        """Wait until the workers have ended, within the executor's deadline. Any thread; idempotent."""
        if os.getpid() != self.owner_pid:
            return
        with self._ending:
            if not self.ended:
                try:
                    self.executor.close()
                    self.ended = True  # not earlier: after an interrupt somebody has to come again
                finally:
                    if self._cache_tally is not None:
                        self._cache_tally.end(self.executor)

    def bequeath(self) -> tuple[SlotTable, Arena, ForkedChildren, FencedSources] | None:
        """Hand slots, arena and what is known of their readers to the pool that comes next; None when they were given back."""
        with self._claiming:
            if self.arena is None or not self._left:
                return None
            found = self.slots, self.arena, self._children, self.fenced
            self.arena = None
            self.slots = SlotTable()
            self._children = ForkedChildren(self.slots)
            self.fenced = FencedSources()
        return found

    def close(self) -> None:
        """End the workers and release all memory, within the executor's deadline. Idempotent; does nothing in a forked child."""
        if os.getpid() != self.owner_pid:
            return
        with self._claiming:  # not while another thread trims it
            self.closed = True
        try:
            self._await_turn()
        finally:
            self._release()

    def _await_turn(self) -> None:
        """Let another thread leave ``next()``, where it finds the pool closed: it may be waiting on what is closed next."""
        if not self.plan.kind.workers:
            return
        if not self.turn.acquire(blocking=False):
            with self._ending:
                if not self.ended and wakes(self.executor):
                    self.executor.wake()
            if not self.turn.acquire(timeout=_TURN_S):
                return
        self.turn.release()

    def _release(self) -> None:
        """End the workers, and give the memory back. One thread at a time: the second one finds nothing left."""
        with self._ending:
            try:
                self.see_off()
            finally:
                with self._claiming:
                    arena = self.arena
                    if self._left:
                        self.arena = None  # nobody can inherit it any more
                try:
                    self._children.close()
                    self.fenced.close()
                    if arena is not None:
                        self._leave_leases(arena)
                finally:  # after an interrupt too: nobody else may know this arena any more
                    if arena is not None:
                        arena.close()

    def _leave_leases(self, arena: Arena) -> None:
        """Batches that the user keeps hold the whole file. Give back the free part of it."""
        while arena.released:
            self.slots.release(arena.released.popleft())
        if self.slots.leased:
            arena.shrink(self.slots.coldest(0), 0)

    def __del__(
        self, _getpid: Callable[[], int] = os.getpid, _exits: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        # At interpreter exit it was closed (lifecycle.py), and names of modules may be None by now.
        if not _exits() and getattr(self, "owner_pid", None) == _getpid():
            self.close()
