"""The budget with batches that grow: what is undelivered stays within bounds, and the consumer always gets on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.types import Receipt, Spans, Task, Ticket

SMALL, LARGE = 10, 1000
TICKETS = 40


@settings(max_examples=200, derandomize=True, database=None)
@given(
    window=st.integers(1, 12),
    budget=st.sampled_from((5, 100, 1500, 4000)),
    grows_at=st.integers(0, 20),
    shrinks_to=st.sampled_from((0, 900)),
    choices=st.lists(st.integers(0, 7), min_size=20, max_size=200),
)
def test_growth_overshoots_by_what_was_dispatched_and_no_more(
    window: int, budget: int, grows_at: int, shrinks_to: int, choices: list[int]
) -> None:
    """Workers finish in any order, the consumer takes when it likes, and the budget may shrink half way through."""
    scheduler = Scheduler(Policy(window, window, budget_bytes=budget), SlotTable(), 3)
    sizes = [SMALL if seq < grows_at else LARGE for seq in range(TICKETS)]
    at_work: list[Task] = []
    ready: list[int] = []
    made: dict[int, int] = {}
    dispatched_then: int | None = None
    planned = taken = turn = 0
    allowed = budget
    while taken < TICKETS:
        if shrinks_to and taken == TICKETS // 2:
            scheduler.allow_bytes(shrinks_to)
        while planned < TICKETS and scheduler.has_room():
            alone = scheduler.open_tickets == 0
            commands = scheduler.handle(m.Planned(Ticket(0, planned, planned, None, 0, rows=1), ()))
            at_work += [command.task for command in commands if isinstance(command, m.Dispatch)]
            planned += 1
            if dispatched_then is not None and not alone:
                coming = sum(sizes[task.ticket.seq] for task in at_work)
                assert sum(made.values()) + coming <= scheduler.budget_bytes, "let in beyond the budget"
        undelivered = sum(made.values()) + sum(sizes[task.ticket.seq] for task in at_work)
        most = max(allowed, LARGE)
        if dispatched_then is not None:
            assert undelivered <= most + dispatched_then * LARGE
        turn += 1
        choice = choices[turn % len(choices)]
        if at_work and (choice % 2 or not ready):
            task = at_work.pop(choice % len(at_work))
            seq = task.ticket.seq
            made[seq] = sizes[seq]
            if sizes[seq] == LARGE and dispatched_then is None:
                dispatched_then = len(at_work) + 1
            result = m.BatchReady(seq, 0, 0, 0, task.slot, None, Receipt(nbytes=sizes[seq]), Spans())
            ready += [each.ticket.seq for each in scheduler.handle(result) if isinstance(each, m.Deliver)]
        else:
            assert ready, "nothing is at work and nothing is ready"
            seq = ready.pop(0)
            scheduler.handle(m.Taken(seq))
            del made[seq]
            taken += 1
