"""The loop of one iteration.

    plan while there is room ─► commands to the executor ─► wait (results, deaths, wake-ups) ─► scheduler ─► deliver in order

Everything happens on the thread that calls ``next``. Between two calls the workers process the tasks they were given.
"""

from __future__ import annotations

import math
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from stoker._record.instruments import is_ours
from stoker._record.recorder import Recorder
from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.device.stager import Stager
from stoker._runtime.engine.duplicate_streams import DuplicateStreams, content_hash
from stoker._runtime.engine.stall_monitor import StallMonitor
from stoker._runtime.engine.step_writer import StepWriter
from stoker._runtime.executors.base import Arrival
from stoker._runtime.executors.interrupt_delay import InterruptDelay
from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.executors.process.crash_report import code_of
from stoker._runtime.plan.planner import Planner
from stoker._runtime.pool.batch_opener import NOTHING
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.pool import Pool
from stoker._runtime.pool.staged_opener import StagedOpener
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import BUDGET_MATTERS_BYTES, EMPTY_LIMIT, Policy
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.ticket_text import place_of_loss
from stoker.errors import Interrupted, NoGoodSample, WorkerDied, coded

if TYPE_CHECKING:
    from stoker._runtime.autoscale.controller import AutoscaleController

_STARVED = m.Starved()
_clock = time.monotonic_ns


class Iteration:
    """One pass over the sampler. It closes itself at the end; ``close`` is idempotent."""

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        stats: LoaderStats,
        progress: Progress,
        *,
        seed: int,
        pipe_seed: int,
        timeout_s: float,
        recorder: Recorder | None = None,
        rows: int = 0,
        autoscaler: AutoscaleController | None = None,
        stager: Stager | None = None,
    ) -> None:
        self._pool = pool
        self._executor = pool.executor
        self._staged = None if stager is None else StagedOpener(pool.opener, stager, pool.fenced)
        """Opens batches if they go to a device or to pinned memory."""
        self._opener = pool.opener if self._staged is None else self._staged
        self._stats = stats
        self._progress = progress
        self._scheduler = Scheduler(
            policy,
            pool.slots,
            pool.workers,
            worker_ids=pool.worker_ids,
            row_ns=pool.row_ns,
            typical_bytes=pool.typical_bytes,
            streams=progress.stream_start(),
        )
        self._timeout_s = timeout_s
        self._duplicates = DuplicateStreams.of(stats, pool.plan.workers, streams=policy.streams)
        # Whether batches of streams are looked at: for duplicates, and the first ones for the receipt.
        self._looks = policy.streams
        self._ready: deque[m.Deliver] = deque()
        self._abort: m.Finish | None = None
        self._closed = False
        # Held while an exception from outside, such as Ctrl-C, would lose a ticket.
        self._guard = InterruptGuard()
        # A batch that this thread was making when Ctrl-C came. It counts as handed over only if the iteration goes on.
        self._cut_off: m.Deliver | None = None
        # A batch that counts as handed over, and is on its way to the user.
        self._handing: m.Deliver | None = None
        self.observer: StepWriter | None = None
        """Measures each batch; None without a record."""
        self._autoscaler = autoscaler
        if recorder is not None:
            inline = not pool.plan.kind.workers
            with InterruptDelay():  # it may open the run page and the journal
                step_buffer = recorder.step_buffer(pool.attribution)
            self.observer = StepWriter(
                recorder, step_buffer, self._scheduler, parent=inline, batched=pool.plan.spec.auto_collation, rows=rows,
                persistent=pool.persistent, streams=policy.streams, to_device=stager is not None and stager.to_device,
                complete=autoscaler is not None or stager is not None or recorder.quiet,
            )  # fmt: skip
        run = 0 if recorder is None else recorder.page_inode
        self.epoch = pool.begin(self._scheduler, stats, progress, seed=seed, pipe_seed=pipe_seed, run=run)
        for worker, resume in progress.resumes(self.epoch):
            pool.executor.resume_at(worker, resume)
        progress.follow_ends(self._scheduler.ends)
        self._planner: Planner | None = None

    @property
    def pool(self) -> Pool:
        """The pool it runs on."""
        return self._pool

    @property
    def workers(self) -> int:
        """The wanted number of workers; 0 if this thread makes the batches."""
        return self._scheduler.target if self._executor.eager else 0

    @property
    def window(self) -> int:
        """How many batches may be planned and not yet taken."""
        return self._scheduler.window

    @property
    def deepest(self) -> int:
        """The largest window it may deepen to."""
        return self._scheduler.max_window

    @property
    def splits(self) -> bool:
        """Whether several workers may share one batch."""
        return self._scheduler.splitting

    @property
    def settled(self) -> bool:
        """Whether exactly the wanted workers are running."""
        there = len(self._scheduler.workers) == self._scheduler.target
        return there and not self._executor.starting()

    @property
    def over(self) -> bool:
        """Whether it will deliver no more batches."""
        return self._closed or self._pool.closed

    def start(self, planner: Planner) -> None:
        """Begin planning, then start the workers. The first one works while the others start."""
        self._planner = planner
        fixed = self._scheduler.policy.bound or not self._pool.plan.kind.workers
        if self._autoscaler is not None and not self._autoscaler.attach(self, fixed=fixed):
            self._autoscaler = None  # it controls another iteration
        try:
            if self._executor.eager:
                self._fill()
            self._pool.launch()
            self._pool.review_budget(self._scheduler)  # not earlier: the workers should have tasks first
        except (OSError, ValueError) as error:
            self._refuse_if_closed(error)
            raise

    def next(self) -> Any:
        """The next batch. Raises StopIteration at the end, and errors of the dataset, the sampler or a worker."""
        autoscaler = self._autoscaler
        if (
            autoscaler is not None
            and _clock() >= autoscaler.due_ns
            and not (self._guard.held or self._executor.guard.held)
        ):
            autoscaler.look(self)  # it may listen, and so release the executor's guard
        empty = 0
        while (batch := self._next()) is NOTHING:
            self._handing = None
            self._stats.note_empty_batch()
            empty += 1
            if empty >= EMPTY_LIMIT:  # the sampler may be endless
                raise NoGoodSample(
                    f"every sample of {empty} batches in a row was bad, so no batch is left to return. "
                    "Read the reasons in loader.stats(), or set on_bad_sample='raise' to see the first one's traceback"
                )
        self._stats.note_batch()
        return batch

    def handed_over(self) -> None:
        """The caller returns the batch to the loop next, without another call in between."""
        self._handing = None

    def not_handed_over(self) -> None:
        """An exception leaves ``next``. A batch that was on its way does not count, and the iteration does not go on without it."""
        deliver, self._handing = self._handing, None
        if deliver is not None:
            self._guard.held += 1
            self._progress.take_back(deliver)

    def _next(self) -> Any:
        """The next batch, or NOTHING for one without any good sample."""
        if self._pool.closed or self._guard.held or self._executor.guard.held:
            self._refuse()
        if self._staged is not None:
            return self._next_staged(self._staged)
        observer = self.observer
        if observer is not None:
            return self._next_counted(observer) if observer.rests_until_ns else self._next_observed(observer)
        if not self._ready:
            self._advance()
        with self._guard:
            deliver = self._take()
            batch = self._open(deliver)
        if self._opener.misfit or self._looks:
            self._compare(deliver, batch)
        return batch

    def _next_observed(self, observer: StepWriter) -> Any:
        """The same steps as ``_next``, with a hook of the observer at each."""
        observer.asked(self._scheduler)
        if not self._ready:
            observer.waiting(self._stats.batches)
            try:
                self._advance()
            except BaseException as error:
                observer.gave_up(error)
                raise
            observer.ready()
        if self._staged is not None:
            began_ns = _clock()
            self._make_ready(self._staged)
            observer.staging(_clock() - began_ns)
        with self._guard:
            deliver = self._take()
            observer.planned()
            try:
                batch = self._open(deliver)
            except BaseException:
                observer.failed(deliver)
                raise
        observer.opened(deliver)
        if self._opener.misfit or self._looks:
            self._compare(deliver, batch)
        return batch

    def _next_counted(self, observer: StepWriter) -> Any:
        """The same steps while the observer rests: it counts the batch."""
        asked_ns = _clock()
        if asked_ns >= observer.rests_until_ns:
            observer.cut_short(asked_ns)
            return self._next_observed(observer)
        ready, deliver = bool(self._ready), None
        try:
            if not ready:
                observer.waits(asked_ns)
                self._advance()
            with self._guard:
                deliver = self._take()
                batch = self._open(deliver)
        except BaseException as error:
            observer.cut_short(asked_ns)
            if deliver is None:
                observer.gave_up(error)
            else:
                observer.failed(deliver)
            raise
        observer.counted(deliver, asked_ns, ready=ready)
        if self._opener.misfit or self._looks:
            self._compare(deliver, batch)
        return batch

    def _next_staged(self, staged: StagedOpener) -> Any:
        """The same steps for a batch that is copied on its way: begin its copy, hand it over, begin the copies of the next ones."""
        staged.drop_done()
        if not staged.copying:  # the device has steps to do: that is the loop's time, and no wait for data
            staged.hold_back(ready=bool(self._ready))
        observer = self.observer
        if observer is None:
            if not self._ready:
                self._advance()
            self._make_ready(staged)
            with self._guard:
                deliver = self._take()
                batch = self._open(deliver)
            if self._opener.misfit or self._looks:
                self._compare(deliver, batch)
        else:
            batch = self._next_observed(observer)
        with self._guard:  # an interrupt here would lose the batch
            began_ns = _clock()
            self._stage_ahead(staged)
            if observer is not None:
                observer.staged(began_ns, _clock())
        return batch

    def _make_ready(self, staged: StagedOpener) -> None:
        """Begin the copy of the next batch, if that was not done, and wait for a thread's part in it, or for late copies."""
        if staged.copying:
            staged.hold_back(ready=True)
        staged.stage(islice(self._ready, 1))
        staged.ready(self._ready[0])

    def _stage_ahead(self, staged: StagedOpener) -> None:
        """Begin the copies of batches that are there, up to the number that may be ahead."""
        ahead = staged.ahead
        if not ahead or self._pool.closed:
            return
        try:
            self.listen(ahead)
        except (OSError, ValueError):
            if not self._pool.closed:  # by another thread
                raise
        staged.stage(islice(self._ready, ahead))

    def leave_staging(self) -> None:
        """The loader was closed on some thread: end the thread that copies, if there is one."""
        if self._staged is not None:
            self._staged.leave()

    def _take(self) -> m.Deliver:
        """Take the batch that is ready and hand out new work. Under the guard: an interrupt here would lose the batch."""
        deliver = self._ready.popleft()
        try:
            self._carry_out(self._scheduler.handle(m.Taken(deliver.ticket.seq)))
            if self._executor.eager:
                self._fill()
        except (OSError, ValueError) as error:
            self._refuse_if_closed(error)
            raise
        return deliver

    def _open(self, deliver: m.Deliver) -> Any:
        """Open the batch; raises the exception of its worker. Under the guard."""
        try:
            batch = self._opener.open(deliver)
        except BaseException as error:
            self._not_opened(deliver, error)
            if not _failed(deliver):
                self._refuse_if_closed(error)
            raise
        self._handing = deliver
        self._progress.note(deliver)
        return batch

    def _compare(self, deliver: m.Deliver, batch: Any) -> None:
        """Stop splitting after parts that did not fit together. Compare the batch with those of other workers."""
        if self._opener.misfit and self._scheduler.splitting:
            self._scheduler.handle(m.SplitRefused())
        if self._duplicates is not None:
            self._duplicates.note(deliver.results[0].worker, batch)
        writer = self._progress.receipt_writer
        if writer is not None and writer.wants_contents:
            writer.note_content(self._progress.noted_number, int.from_bytes(content_hash(batch)[:8]))
        else:
            self._looks = self._duplicates is not None

    def _not_opened(self, deliver: m.Deliver, error: BaseException) -> None:
        """An exception of the worker costs its batch only. After an interrupt in this process the guard stays held."""
        if isinstance(error, Exception) or _failed(deliver):
            self._guard.leave()
            if isinstance(error, Exception) or self._executor.eager:
                self._progress.note(deliver, failed=True)
            else:
                self._cut_off = deliver

    def resize(self, workers: int, window: int = 0) -> int:
        """Change the number of workers and the window; returns the new number. A ``window`` of 0 follows the workers.

        Called between two batches, on the thread that iterates. The batches stay the same, bit for bit. The number stays as it is
        where workers are bound to their tickets. A worker that cannot be started is left out.
        """
        scheduler, executor = self._scheduler, self._executor
        # An interrupt here would leave workers counted that were never started. A later epoch would wait for them.
        with self._guard, executor.guard:
            for command in scheduler.handle(m.ResizeAsked(workers, window)):
                try:
                    self._carry_out([command])
                except Exception as error:
                    if not isinstance(command, m.Spawn) or not is_ours(error):
                        raise
                    reason = f"{type(error).__name__}: {error}"
                    refused = m.WorkerLost(command.worker, reason=reason, started=False, refused=True)
                    self._on_worker_lost(Arrival(-1, refused), refused)
        self._pool.resized(scheduler)
        return scheduler.target

    def close(self) -> None:
        """Give the pool back. Results that arrive later are dropped."""
        if not self._closed:
            self._closed = True
            if self._autoscaler is not None:
                self._autoscaler.detach(self)
            self._ready.clear()
            if self._staged is not None:
                self._staged.close()
            if self.observer is not None:
                self.observer.close()
            self._pool.end(self.epoch)

    def _refuse_if_closed(self, error: BaseException) -> None:
        """Raise LoaderClosed if another thread closed the loader, which took away what this one was using."""
        pool = self._pool
        if isinstance(error, OSError | ValueError) and pool.closed and not pool.refused and is_ours(error):
            self._refuse()

    def _refuse(self) -> None:
        """Raise the reason why there is no batch: the pool is closed, or an interrupt lost a batch."""
        if self._closed:
            raise StopIteration
        self._pool.refuse_if_closed()
        raise Interrupted(
            "an earlier exception (Ctrl-C, a signal handler or a sampler) lost a batch that was in progress, so this "
            "iterator cannot continue: call iter(loader) again"
        )

    def _advance(self) -> None:
        """Plan and wait until a batch is ready. Raises if none will be."""
        pool = self._pool
        executor = self._executor
        if self._cut_off is not None:
            self._progress.note(self._cut_off, failed=True)
            self._cut_off = None
        monitor = StallMonitor(executor, self._scheduler, self.epoch, self._stats.name, self._timeout_s)
        while not self._ready:
            if self._closed:
                raise StopIteration
            if pool.closed:
                self._refuse()
            try:
                self._fill()
                if self._ready:
                    return
                if self._scheduler.finished:
                    self._finish()
                self._carry_out(self._scheduler.handle(_STARVED))
                arrivals = executor.wait(monitor.left_s())
                with self._guard:
                    self._handle_arrivals(arrivals)
            except (OSError, ValueError) as error:
                self._refuse_if_closed(error)
                raise
            if not self._ready and monitor.check():
                self._stats.note_stall(monitor.stall)

    def _handle_arrivals(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            if type(arrival.event) is m.WorkerLost:
                self._on_worker_lost(arrival, arrival.event)
            else:
                self._carry_out(self._pool.route(arrival))
        self._executor.guard.release()

    def listen(self, enough: float = math.inf) -> None:
        """Handle messages of workers without waiting, until ``enough`` batches are ready. Otherwise none is read while one is."""
        executor, ready = self._executor, self._ready
        while executor.eager and len(ready) < enough and not self.over and (arrivals := executor.wait(0)):
            with self._guard:
                self._handle_arrivals(arrivals)
        executor.guard.release()

    def _fill(self) -> None:
        pool, scheduler = self._pool, self._scheduler
        arena = pool.arena
        if arena is not None and (arena.released or pool.trim_asked):
            pool.reclaim()
        if scheduler.typical_bytes * scheduler.window >= BUDGET_MATTERS_BYTES:
            pool.review_budget(scheduler)
        guard = self._guard
        while scheduler.has_room():
            planned = self._plan()  # the user's code: an interrupt in it loses nothing
            if planned is None:
                break
            guard.held += 1  # not ``with``: an interrupt while it is entered would lose the ticket
            self._carry_out(scheduler.handle(planned))
            guard.held -= 1

    def _plan(self) -> m.Planned | m.PlanEnded | None:
        """The next ticket; None if there is none at present."""
        assert self._planner is not None
        return self._planner.plan()

    def _carry_out(self, commands: list[m.Command]) -> None:
        for command in commands:
            if isinstance(command, m.Dispatch):
                self._executor.submit(command.task)
            elif isinstance(command, m.Deliver):
                self._ready.append(command)
            elif isinstance(command, m.Spawn):
                refused = self._pool.spawn(command.worker)
                if refused is not None:
                    self._on_worker_lost(Arrival(-1, refused), refused)
            elif isinstance(command, m.Retire):
                self._executor.retire(command.worker)
            else:
                self._abort = command

    def _on_worker_lost(self, arrival: Arrival, loss: m.WorkerLost) -> None:
        """Handle the loss of a worker. Add the ticket it was on to the details now, because the scheduler will forget it."""
        if loss.expected:
            self._carry_out(self._pool.route(arrival))
            return
        if not loss.refused:
            self._stats.note_death()
        ticket = self._scheduler.ticket(loss.claimed[0]) if loss.claimed is not None else None
        loss = loss._replace(details=f"\n  {place_of_loss(loss, ticket)}{loss.details}")
        commands = self._pool.route(arrival._replace(event=loss))
        if self._scheduler.policy.restart_idle:
            again = any(type(command) is m.Spawn for command in commands)
            follows = "; a new worker takes its place" if again else ""
            text = f"{loss.reason.rstrip('.')}{follows}.{loss.details}"
            self._stats.event("restart" if again else "worker_died", text)
            self._stats.warn(f"{text}\n  stoker explain {code_of(text)} has causes and fixes")
        self._carry_out(commands)

    def _finish(self) -> NoReturn:
        """Close, because there are no more batches, and raise the reason."""
        abort = self._abort
        error = None if self._planner is None else self._planner.take_error()
        self.close()
        if abort is not None and abort.reason:
            self._pool.close()  # it lost workers that are not replaced
            told = abort.reason + abort.details
            raise coded(WorkerDied(told), code_of(told))
        if error is not None:
            raise error
        if self._duplicates is not None:
            self._duplicates.ended()
        raise StopIteration


def _failed(deliver: m.Deliver) -> bool:
    return any(type(result) is m.BatchFailed for result in deliver.results)
