"""Rows that kill their workers, as the scheduler sees them."""

from __future__ import annotations

import pytest

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import DEATHS_LIMIT, Policy
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.types import Task
from tests.unit.test_scheduler import plan, ready, start, ticket

EXCLUDE = Policy(window=3, max_window=3, restarts=1, exclude_killers=True)


def fall(scheduler: Scheduler, task: Task, row: int, worker: int = 0) -> list[Task]:
    """A worker dies over a task while fetching a row; what is dispatched again."""
    key = (task.ticket.seq, task.attempt, task.part.number)
    commands = scheduler.handle(m.WorkerLost(worker, key, reason="killed", row=row))
    return [command.task for command in commands if isinstance(command, m.Dispatch)]


def test_a_row_that_kills_too_often_is_excluded() -> None:
    scheduler, _ = start(EXCLUDE)
    (task,) = plan(scheduler, 0)
    (task,) = fall(scheduler, task, row=2)
    assert task.ticket.excluded == ()
    (task,) = fall(scheduler, task, row=2)
    assert task.ticket == ticket(0)._replace(excluded=(2,))
    (task,) = fall(scheduler, task, row=3)
    (task,) = fall(scheduler, task, row=3)
    assert task.ticket.excluded == (2, 3)
    (deliver,) = scheduler.handle(ready(task))
    assert isinstance(deliver, m.Deliver)
    assert deliver.ticket.excluded == (2, 3)
    scheduler.handle(m.Taken(0))
    assert scheduler._deaths.by_row == {}


def test_without_sifting_no_row_is_excluded() -> None:
    scheduler, _ = start()
    (task,) = plan(scheduler, 0)
    (task,) = fall(scheduler, task, row=2)
    assert fall(scheduler, task, row=2) == []


def test_a_row_answers_for_its_own_deaths_only() -> None:
    """Three workers killed for want of memory, say, on three rows: none of the three is at fault."""
    scheduler, _ = start(EXCLUDE)
    (task,) = plan(scheduler, 0)
    for row in (0, 3, 1):
        (task,) = fall(scheduler, task, row)
    assert task.ticket.excluded == ()
    (task,) = fall(scheduler, task, row=3)
    assert task.ticket.excluded == (3,)


@pytest.mark.parametrize("row", [-1, 4, 99], ids=["unknown", "behind the last", "far out"])
def test_a_death_on_no_known_row_is_the_ticket_s(row: int) -> None:
    scheduler, _ = start(EXCLUDE)
    (task,) = plan(scheduler, 0)
    (task,) = fall(scheduler, task, row)
    assert fall(scheduler, task, row) == []


def test_a_row_outside_its_part_is_not_known() -> None:
    scheduler, _ = start(Policy(4, 4, restarts=0, split=True, exclude_killers=True))
    _, second = plan(scheduler, 0, rows=32)
    scheduler.handle(m.Claimed(1, 0, 0, 0))
    assert fall(scheduler, second, row=3) == []


def test_rows_of_several_parts_are_excluded_one_by_one() -> None:
    scheduler, _ = start(Policy(4, 4, restarts=0, split=True, exclude_killers=True))
    first, second = plan(scheduler, 0, rows=32)
    scheduler.handle(m.Claimed(1, 0, 0, 1))
    (first,) = fall(scheduler, first, row=3)
    assert first.ticket.excluded == (3,)
    scheduler.handle(m.Claimed(0, 0, 1, 0))
    (second,) = fall(scheduler, second, row=20, worker=1)
    assert second.ticket.excluded == (3, 20)
    assert scheduler.handle(ready(first)) == []
    (deliver,) = scheduler.handle(ready(second))
    assert isinstance(deliver, m.Deliver)
    assert deliver.ticket.excluded == (3, 20)


def test_the_one_row_of_a_ticket_without_batches() -> None:
    scheduler, _ = start(Policy(3, 3, restarts=0, exclude_killers=True))
    (task,) = plan(scheduler, 0, rows=0)
    (task,) = fall(scheduler, task, row=0)
    assert task.ticket.excluded == (0,)


def test_the_worker_s_own_names_for_what_it_fetched_are_told_back() -> None:
    scheduler, _ = start(Policy(3, 3, restarts=0, exclude_killers=True))
    (task,) = plan(scheduler, 0)
    (task,) = fall(scheduler, task, row=-2)
    (task,) = fall(scheduler, task, row=-5)
    assert task.ticket.excluded == (-2, -5)
    assert fall(scheduler, task, row=-5) == [], "what is excluded and kills again is not known after all"


@pytest.mark.parametrize(("rows", "deadly"), [(1, (0,)), (0, (0,)), (2, (0, 1))])
def test_a_ticket_of_which_nothing_is_left_is_no_sign_of_life(rows: int, deadly: tuple[int, ...]) -> None:
    scheduler, _ = start(Policy(1, 1, restarts=0, exclude_killers=True), workers=1)
    for seq in range(DEATHS_LIMIT // len(deadly)):
        assert not scheduler.finished
        (task,) = plan(scheduler, seq, rows)
        for row in deadly:
            if scheduler.deaths == DEATHS_LIMIT - 1:
                commands = scheduler.handle(m.WorkerLost(0, (seq, task.attempt, 0), reason="killed", row=row))
                reason = "killed: 30 workers died without one batch delivered between them"
                assert commands[0] == m.Finish(reason)
                return
            (task,) = fall(scheduler, task, row)
        scheduler.handle(ready(task))
        scheduler.handle(m.Taken(seq))
    pytest.fail("it goes on")


def test_a_ticket_of_which_something_is_left_is_one() -> None:
    scheduler, _ = start(Policy(1, 1, restarts=0, exclude_killers=True), workers=1)
    for seq in range(2 * DEATHS_LIMIT):
        (task,) = plan(scheduler, seq, rows=2)
        (task,) = fall(scheduler, task, row=1)
        scheduler.handle(ready(task))
        scheduler.handle(m.Taken(seq))
    assert not scheduler.finished


def test_a_ticket_that_is_dropped_leaves_no_counts() -> None:
    scheduler, _ = start(EXCLUDE)
    (task,) = plan(scheduler, 0)
    (task,) = fall(scheduler, task, row=2)
    scheduler.handle(m.CloseAsked())
    scheduler.handle(ready(task))
    assert scheduler.drained
    assert scheduler._deaths.by_row == {}
