"""What the pure core costs per batch: the scheduler and its slots, driven through whole lives of tickets.

The loop below is the engine's without processes: plan while there is room, let the oldest tasks come back
slightly out of order, take what is delivered, release its slot. Building the events is part of the cost, as
it is in the engine.
"""

from __future__ import annotations

import time
from collections import deque

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.types import Receipt, Spans, Task, Ticket

WORKERS = 4
ROWS = 64
BATCH_BYTES = 10_000_000


def cost_us(*, split: bool, batches: int = 5_000, repeats: int = 5) -> float:
    """Return CPU µs per batch, best of a few runs: the code is deterministic, what exceeds the best is noise.

    CPU and not wall time: it never waits, so the difference is what other programs took.
    """
    runs_ns = []
    for _ in range(repeats):
        start_ns = time.thread_time_ns()
        delivered = drive(batches, split=split)
        runs_ns.append(time.thread_time_ns() - start_ns)
        if delivered != batches:
            raise RuntimeError(f"{delivered} batches were delivered instead of {batches}")
    return min(runs_ns) / batches / 1e3


def drive(batches: int, *, split: bool) -> int:
    """Run one iteration of ``batches`` tickets through a scheduler; returns how many it delivered."""
    window = 2 * WORKERS
    slots = SlotTable()
    scheduler = Scheduler(Policy(window, window, split=split), slots, WORKERS)
    ranges = row_ranges(ROWS) if split else ()
    # A batch of 10 ms: with ``split`` long enough to be divided whenever workers idle.
    spans = Spans(0, 1, 5_000_000, 9_000_000, 10_000_001)
    receipt = Receipt(0, 64, BATCH_BYTES)
    indices = list(range(ROWS))
    tasks: deque[Task] = deque()
    planned = delivered = 0
    while not scheduler.finished:
        # A ticket is split only over workers that are idle: with ``split`` each one finds all of them so.
        while scheduler.has_room() and not (split and tasks):
            if planned == batches:
                scheduler.handle(m.PlanEnded())
                break
            ticket = Ticket(0, planned, planned, indices, 7, ROWS)
            planned += 1
            commands = scheduler.handle(m.Planned(ticket, ranges))
            tasks.extend(command.task for command in commands if type(command) is m.Dispatch)
        if not tasks:
            continue
        if len(tasks) > 1 and planned % 2:
            # Every other time the second oldest is done first: the reorder buffer has something to do.
            tasks.rotate(-1)
            task = tasks.popleft()
            tasks.rotate(1)
        else:
            task = tasks.popleft()
        ready = m.BatchReady(
            task.ticket.seq, task.attempt, task.part.number, 0, task.slot, task.scratch, receipt, spans
        )
        for command in scheduler.handle(ready):
            if type(command) is m.Deliver:
                delivered += 1
                _take(scheduler, slots, command)
    return delivered


def _take(scheduler: Scheduler, slots: SlotTable, deliver: m.Deliver) -> None:
    """Hand a batch to a consumer that drops it at once."""
    scheduler.handle(m.Starved())
    scheduler.handle(m.Taken(deliver.ticket.seq))
    leased = None
    for result in deliver.results:
        if type(result) is m.BatchReady:
            if result.slot is not None and result.slot != leased:
                leased = result.slot
                slots.lease(leased)
            if result.scratch is not None:
                slots.release(result.scratch)  # as the hand-off does: scratch slots are copied, never leased
    if leased is not None:
        scheduler.handle(m.Released(leased))
