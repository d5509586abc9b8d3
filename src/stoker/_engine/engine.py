"""The loop of one iteration.

    plan while there is room ─► commands to the executor ─► wait (results, deaths, wake-ups) ─► scheduler ─► deliver in order

Everything happens on the thread that calls ``next``; between calls the workers go through what was dispatched.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from stoker._core import messages as m
from stoker._core.policy import Policy
from stoker._core.scheduler import Scheduler
from stoker._core.types import Ticket
from stoker._engine.pool import Pool
from stoker._plan.planner import Planner
from stoker.errors import Interrupted, LoaderClosed, WorkerDied, WorkerTimeout

_STARVED = m.Starved()


class Iteration:
    """One pass over the sampler. ``close`` is idempotent and happens by itself at the end."""

    def __init__(self, pool: Pool, policy: Policy, *, seed: int, pipe_seed: int, timeout_s: float) -> None:
        self._pool = pool
        self._scheduler = Scheduler(policy, pool.slots, pool.plan.workers, row_ns=pool.row_ns)
        self._timeout_s = timeout_s
        pool.keep_slots = 2 * policy.window
        self._ready: deque[m.Deliver] = deque()
        self._abort = ""
        self._closed = False
        # True while an exception from outside, such as Ctrl-C, would leave a ticket that nobody waits for or makes.
        self._torn = False
        self.epoch = pool.begin(self._scheduler, seed, pipe_seed)
        self._planner: Planner | None = None

    def start(self, planner: Planner) -> None:
        """Begin planning, then start workers: the first of them works while the others come up."""
        self._planner = planner
        if self._pool.executor.eager:
            self._fill()
        self._pool.launch()

    def next(self) -> Any:
        """The next batch. Raises StopIteration at the end, or what the dataset, sampler or a worker's death led to."""
        ready, scheduler = self._ready, self._scheduler
        if self._pool.closed or self._torn:
            self._refuse()
        if not ready:
            self._advance()
        self._torn = True
        deliver = ready.popleft()
        self._carry_out(scheduler.handle(m.Taken(deliver.ticket.seq)))
        handoff = self._pool.handoff
        if self._pool.executor.eager:
            self._fill()
        self._torn = False
        batch = handoff.open(deliver)
        if handoff.misfit and scheduler.splitting:
            scheduler.handle(m.SplitRefused())
        return batch

    def close(self) -> None:
        """Let go of the pool. Tickets still on their way are dropped as they come."""
        if not self._closed:
            self._closed = True
            self._ready.clear()
            self._pool.end(self.epoch)

    def _refuse(self) -> None:
        """Nothing comes from a pool that is closed, not even what was ready: its slots are gone. Nor from torn accounts."""
        if self._closed:
            raise StopIteration
        if os.getpid() != self._pool.owner_pid:
            raise LoaderClosed(
                f"this iterator's workers belong to process {self._pool.owner_pid}, which forked this one: "
                "call iter() on the loader again in the child"
            )
        if self._pool.closed:
            raise LoaderClosed("the loader was closed while this iterator was in use")
        raise Interrupted(
            "an exception (of a signal handler or a sampler) came while this iterator handed out work; it would wait for "
            "what was lost then: call iter() on the loader again"
        )

    def _advance(self) -> None:
        """Plan and wait until a batch is ready; raises when none will be."""
        pool = self._pool
        deadline = time.monotonic() + self._timeout_s if self._timeout_s > 0 else None
        while not self._ready:
            if self._closed:
                raise StopIteration
            if pool.closed:
                self._refuse()
            self._torn = False
            self._fill()
            if self._ready:
                return
            if self._scheduler.finished:
                self._finish()
            self._carry_out(self._scheduler.handle(_STARVED))
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            arrivals = pool.executor.wait(left)
            if not arrivals and deadline is not None and time.monotonic() >= deadline:
                raise WorkerTimeout(
                    f"DataLoader timed out after {self._timeout_s} seconds{self._whereabouts()}"
                )
            self._torn = True
            for arrival in arrivals:
                self._carry_out(pool.route(arrival))
        self._torn = False

    def _fill(self) -> None:
        pool, scheduler, planner = self._pool, self._scheduler, self._planner
        assert planner is not None
        arena = pool.arena
        if arena is not None and arena.released:
            pool.reclaim()
        torn = self._torn
        while scheduler.has_room():
            planned = planner.plan()  # the user's code, in which Ctrl-C does no harm
            self._torn = True
            self._carry_out(scheduler.handle(planned))
            self._torn = torn

    def _carry_out(self, commands: list[m.Command]) -> None:
        for command in commands:
            if isinstance(command, m.Dispatch):
                self._pool.executor.submit(command.task)
            elif isinstance(command, m.Deliver):
                self._ready.append(command)
            elif isinstance(command, m.Spawn):
                self._pool.spawn(command.worker)
            elif isinstance(command, m.Retire):
                self._pool.executor.retire(command.worker)
            else:
                self._abort = command.reason

    def _whereabouts(self) -> str:
        """What the workers are on, a line each, by dataset index."""
        lines = []
        for seen in self._pool.executor.sightings():
            ticket = self._scheduler.ticket(seen.seq) if seen.epoch == self.epoch else None
            where = "a batch nobody waits for any more" if ticket is None else _place(ticket, seen.row)
            lines.append(
                f"\n  worker {seen.worker} (pid {seen.pid}) has been on {where} for {seen.since_ns / 1e9:.1f} s"
            )
        return "".join(lines)

    def _finish(self) -> None:
        """Nothing more comes: say why."""
        abort, planner = self._abort, self._planner
        error = planner.error if planner is not None else None
        if planner is not None:
            planner.error = None
        self.close()
        if abort:
            raise WorkerDied(abort)
        if error is not None:
            raise error
        raise StopIteration


def _place(ticket: Ticket, row: int) -> str:
    """Which sample a worker is on. ``row`` is a hint: it may belong to the ticket before."""
    indices: Any = ticket.indices
    if indices is None or (
        isinstance(indices, list) and None in indices
    ):  # an iterable dataset has no indices
        return f"batch {ticket.seq}"
    if not ticket.rows:
        return f"dataset index {indices!r}"
    return f"dataset index {list(indices)[min(row, ticket.rows - 1)]!r}"
