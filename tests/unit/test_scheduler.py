"""The scheduler, event by event. What only happens in combinations is explored in tests/model."""

from __future__ import annotations

import pytest

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import SIZE_MEMORY, Policy
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotState, SlotTable
from stoker._runtime.scheduler.types import Part, Receipt, Spans, Task, Ticket
from stoker.errors import IllegalMove

PLAIN = Policy(window=3, max_window=3, restarts=1)
MILLISECOND_NS = 1_000_000


def ticket(seq: int, rows: int = 4) -> Ticket:
    return Ticket(epoch=0, seq=seq, position=seq, indices=None, seed=0, rows=rows)


def start(policy: Policy = PLAIN, workers: int = 2, row_ns: float = 0.0) -> tuple[Scheduler, SlotTable]:
    slots = SlotTable()
    return Scheduler(policy, slots, workers, row_ns=row_ns), slots


def plan(scheduler: Scheduler, seq: int, rows: int = 4) -> list[Task]:
    commands = scheduler.handle(m.Planned(ticket(seq, rows), row_ranges(rows)))
    assert all(isinstance(command, m.Dispatch) for command in commands)
    return [command.task for command in commands if isinstance(command, m.Dispatch)]


def ready(task: Task, nbytes: int = 100, work_ns: int = 0) -> m.BatchReady:
    spans = Spans(received_ns=1, sent_ns=1 + work_ns) if work_ns else Spans()
    names = (task.ticket.seq, task.attempt, task.part.number, task.worker or 0, task.slot, task.scratch)
    return m.BatchReady(*names, Receipt(nbytes=nbytes), spans)


def seqs(commands: list[m.Command]) -> list[int]:
    return [command.ticket.seq for command in commands if isinstance(command, m.Deliver)]


def test_a_ticket_is_dispatched_whole_with_a_slot_of_its_own() -> None:
    scheduler, slots = start()
    first, second = [*plan(scheduler, 0), *plan(scheduler, 1)]
    assert first.part == Part(0, 1, 0, 4)
    assert first.slot != second.slot
    assert (first.attempt, first.scratch, first.worker) == (0, None, None)
    assert slots.state(0) is slots.state(1) is SlotState.BUSY
    assert scheduler.ticket(1) == ticket(1)
    assert scheduler.ticket(2) is None


def test_without_shared_memory_there_is_no_slot() -> None:
    scheduler, slots = start(Policy(2, 2, shared_memory=False))
    (task,) = plan(scheduler, 0)
    assert task.slot is None
    assert len(slots) == 0
    assert seqs(scheduler.handle(ready(task))) == [0]


def test_delivery_follows_the_order_of_tickets() -> None:
    scheduler, _ = start()
    first, second = [*plan(scheduler, 0), *plan(scheduler, 1)]
    assert scheduler.handle(ready(second)) == []
    assert seqs(scheduler.handle(ready(first))) == [0, 1]


def test_or_the_order_of_arrival() -> None:
    scheduler, _ = start(Policy(3, 3, in_order=False))
    first, second = [*plan(scheduler, 0), *plan(scheduler, 1)]
    assert seqs(scheduler.handle(ready(second))) == [1]
    assert seqs(scheduler.handle(ready(first))) == [0]


def test_a_failure_is_delivered_in_its_place() -> None:
    scheduler, _ = start()
    (task,) = plan(scheduler, 0)
    failed = m.BatchFailed(0, 0, 0, 1, task.slot, None, Receipt(), Spans())
    assert scheduler.handle(failed) == [m.Deliver(ticket(0), (failed,))]


def test_the_window_counts_until_a_batch_is_taken() -> None:
    scheduler, _ = start(Policy(1, 1))
    assert scheduler.has_room()
    (task,) = plan(scheduler, 0)
    assert not scheduler.has_room()
    scheduler.handle(ready(task))
    assert not scheduler.has_room()
    scheduler.handle(m.Taken(0))
    assert scheduler.has_room()
    assert scheduler.open_tickets == 0


def test_the_budget_counts_what_is_made_and_what_is_coming() -> None:
    scheduler, _ = start(Policy(8, 8, budget_bytes=250))
    first, second = [*plan(scheduler, 0), *plan(scheduler, 1)]
    assert scheduler.has_room(), "nothing is known about sizes yet"
    scheduler.handle(ready(first))
    assert not scheduler.has_room(), "one made, one coming, a third would be 300 bytes"
    scheduler.handle(m.Taken(0))
    assert scheduler.has_room()
    scheduler.handle(ready(second, nbytes=1000))
    assert not scheduler.has_room()
    scheduler.handle(m.Taken(1))
    assert scheduler.has_room(), "the head of the line is always let in"


def test_a_careful_loader_begins_with_a_ticket_per_worker() -> None:
    scheduler, _ = start(Policy(8, 8, budget_bytes=1000, careful=True), workers=2)
    first, _ = [*plan(scheduler, 0), *plan(scheduler, 1)]
    assert not scheduler.has_room(), "a third might be too much, and keeps no worker busy"
    scheduler.handle(ready(first))
    assert scheduler.has_room()


def test_the_budget_may_move_and_takes_effect_at_once() -> None:
    scheduler, _ = start(Policy(8, 8))
    scheduler.typical_bytes = 100
    plan(scheduler, 0)
    assert scheduler.has_room()
    scheduler.allow_bytes(199)
    assert not scheduler.has_room()
    scheduler.allow_bytes(200)
    assert scheduler.has_room()
    assert scheduler.undelivered_bytes == 100


def test_a_large_batch_is_expected_again_at_once_and_forgotten_slowly() -> None:
    scheduler, _ = start()
    for seq, nbytes in enumerate([1000, 64_000, *[1000] * 70]):
        (task,) = plan(scheduler, seq)
        scheduler.handle(ready(task, nbytes=nbytes))
        scheduler.handle(m.Taken(seq))
        if 1 <= seq <= SIZE_MEMORY:
            assert scheduler.typical_bytes == 64_000
    assert scheduler.typical_bytes == 1000


def test_rows_in_the_slot_of_a_split_ticket_count_once() -> None:
    scheduler, _ = start(Policy(4, 4, split=True, budget_bytes=10_000), row_ns=MILLISECOND_NS)
    parts = plan(scheduler, 0, rows=64)
    assert len(parts) == 2
    for task in parts:
        result = ready(task, nbytes=50)
        scheduler.handle(result._replace(receipt=result.receipt._replace(shared_bytes=4000)))
    assert scheduler.undelivered_bytes == scheduler.typical_bytes == 4100


def test_a_ticket_issued_again_counts_twice_until_it_is_taken() -> None:
    scheduler, _ = start(Policy(8, 8, restarts=1, budget_bytes=300))
    scheduler.typical_bytes = 100
    plan(scheduler, 0)
    assert scheduler.has_room()
    commands = scheduler.handle(m.WorkerLost(1, reason="gone"))
    (again,) = [command.task for command in commands if isinstance(command, m.Dispatch)]
    assert scheduler.undelivered_bytes == 200
    plan(scheduler, 1)
    assert not scheduler.has_room(), "somebody may still be writing the first attempt"
    scheduler.handle(ready(again))
    scheduler.handle(m.Taken(0))
    assert scheduler.undelivered_bytes == 100


def test_the_window_deepens_when_the_head_of_the_line_is_late_and_a_worker_idles() -> None:
    scheduler, _ = start(Policy(window=2, max_window=3))
    (late,) = plan(scheduler, 0)
    (early,) = plan(scheduler, 1)
    scheduler.handle(m.Starved())
    scheduler.handle(ready(early))
    assert scheduler.window == 3
    (next_one,) = plan(scheduler, 2)
    scheduler.handle(ready(next_one))
    assert scheduler.window == 3, "up to the limit"
    scheduler.handle(ready(late))


def test_the_window_stays_when_it_is_the_head_that_arrives() -> None:
    scheduler, _ = start(Policy(window=2, max_window=3))
    (head,) = plan(scheduler, 0)
    scheduler.handle(m.Starved())
    scheduler.handle(ready(head))
    assert scheduler.window == 2


def test_the_window_stays_when_nobody_waits() -> None:
    scheduler, _ = start(Policy(window=1, max_window=4))
    (task,) = plan(scheduler, 0)
    scheduler.handle(ready(task))
    assert scheduler.window == 1


def test_the_end_comes_when_the_last_batch_is_taken() -> None:
    scheduler, _ = start()
    (task,) = plan(scheduler, 0)
    assert scheduler.handle(m.PlanEnded()) == []
    scheduler.handle(ready(task))
    assert not scheduler.finished
    assert scheduler.handle(m.Taken(0)) == [m.Finish()]
    assert scheduler.finished
    assert scheduler.drained


def test_an_empty_plan_ends_at_once() -> None:
    scheduler, _ = start()
    assert scheduler.handle(m.PlanEnded()) == [m.Finish()]
    assert not scheduler.has_room()


def test_the_first_batch_is_split_among_idle_workers() -> None:
    scheduler, slots = start(Policy(4, 4, split=True), workers=3)
    tasks = plan(scheduler, 0, rows=64)
    assert [(task.part.start, task.part.stop) for task in tasks] == [(0, 16), (16, 32), (32, 64)]
    assert len({task.slot for task in tasks}) == 1
    assert len({task.scratch for task in tasks}) == 3
    assert len(slots) == 4
    assert scheduler.idle == 0
    assert scheduler.handle(ready(tasks[2])) == scheduler.handle(ready(tasks[0])) == []
    (deliver,) = scheduler.handle(ready(tasks[1]))
    assert isinstance(deliver, m.Deliver)
    assert [result.part for result in deliver.results] == [0, 1, 2]


@pytest.mark.parametrize(("row_ns", "parts"), [(MILLISECOND_NS, 2), (1000.0, 1)])
def test_later_batches_are_split_when_they_take_long(row_ns: float, parts: int) -> None:
    scheduler, _ = start(Policy(4, 4, split=True), row_ns=row_ns)
    assert len(plan(scheduler, 0, rows=64)) == parts


def test_a_refused_split_is_the_last() -> None:
    scheduler, _ = start(Policy(4, 4, split=True), row_ns=MILLISECOND_NS)
    assert scheduler.handle(m.SplitRefused()) == []
    assert len(plan(scheduler, 0, rows=64)) == 1


def test_bound_tickets_go_round_and_skip_streams_that_ended() -> None:
    scheduler, slots = start(Policy(9, 9, bound=True), workers=3)
    tasks = [task for seq in range(4) for task in plan(scheduler, seq)]
    assert [(task.worker, task.pull) for task in tasks] == [(0, 0), (1, 0), (2, 0), (0, 1)]
    ended = m.SourceEnded(1, 0, 0, 1, tasks[1].slot, None)
    assert scheduler.handle(ended) == []
    assert scheduler.open_tickets == 3
    assert len(slots.coldest(0)) == 1
    tasks = [task for seq in range(4, 7) for task in plan(scheduler, seq)]
    assert [(task.worker, task.pull) for task in tasks] == [(2, 1), (0, 2), (2, 2)]


def test_unordered_bound_tickets_go_to_the_least_loaded() -> None:
    scheduler, _ = start(Policy(9, 9, bound=True, in_order=False))
    tasks = [task for seq in range(3) for task in plan(scheduler, seq)]
    assert [task.worker for task in tasks] == [0, 1, 0]
    scheduler.handle(ready(tasks[0]))
    scheduler.handle(ready(tasks[2]))
    assert plan(scheduler, 3)[0].worker == 0


def test_the_last_stream_to_end_ends_the_run() -> None:
    scheduler, _ = start(Policy(4, 4, bound=True))
    first, second = [*plan(scheduler, 0), *plan(scheduler, 1)]
    assert scheduler.handle(m.SourceEnded(1, 0, 0, 1, second.slot, None)) == []
    assert scheduler.handle(m.SourceEnded(0, 0, 0, 0, first.slot, None)) == [m.Finish()]


def test_a_lost_task_is_issued_again_elsewhere_and_its_duplicate_dropped() -> None:
    scheduler, slots = start()
    (task,) = plan(scheduler, 0)
    dispatch, spawn = scheduler.handle(m.WorkerLost(0))
    assert spawn == m.Spawn(0), "last: the task is in line before the replacement comes"
    assert isinstance(dispatch, m.Dispatch)
    assert dispatch.task.attempt == 1
    assert task.slot is not None
    assert slots.state(task.slot.index) is SlotState.RETIRED
    assert scheduler.handle(ready(task)) == []
    assert seqs(scheduler.handle(ready(dispatch.task))) == [0]
    assert (scheduler.deaths, scheduler.reissued) == (1, 1)


def test_what_is_queued_or_claimed_by_the_living_stays() -> None:
    scheduler, _ = start()
    plan(scheduler, 0)
    plan(scheduler, 1)
    scheduler.handle(m.Claimed(1, 0, 0, 0))
    assert scheduler.handle(m.WorkerLost(0, None, frozenset({(1, 0, 0)}))) == [m.Spawn(0)]


def test_a_ticket_that_kills_too_often_is_lost() -> None:
    scheduler, slots = start()
    plan(scheduler, 0)
    scheduler.handle(m.WorkerLost(0, (0, 0, 0), reason="killed"))
    commands = scheduler.handle(m.WorkerLost(1, (0, 1, 0), reason="killed"))
    assert commands == [m.Deliver(ticket(0), (m.Lost(0, 0, 1, "killed"),)), m.Spawn(1)]
    assert slots.live == 0


def test_resizing_spawns_new_ids_and_retires_anyone() -> None:
    scheduler, _ = start()
    assert scheduler.handle(m.ResizeAsked(4)) == [m.Spawn(2), m.Spawn(3)]
    assert scheduler.handle(m.ResizeAsked(0)) == [m.Retire(None)] * 3
    for worker in (1, 3, 0):
        assert scheduler.handle(m.WorkerLost(worker, expected=True)) == []
    assert scheduler.workers == {2}
    assert scheduler.deaths == 0
    assert scheduler.handle(m.ResizeAsked(3)) == [m.Spawn(0), m.Spawn(1)]


def test_an_id_is_free_when_its_worker_is_gone_not_when_it_is_told_to_go() -> None:
    scheduler, _ = start()
    assert scheduler.handle(m.ResizeAsked(1)) == [m.Retire(None)]
    assert scheduler.handle(m.ResizeAsked(2)) == [m.Spawn(2)]
    assert scheduler.handle(m.WorkerLost(0, expected=True, left=True)) == []
    assert scheduler.workers == {1, 2}


def test_nothing_is_made_again_when_a_worker_leaves() -> None:
    scheduler, _ = start()
    plan(scheduler, 0)
    scheduler.handle(m.ResizeAsked(1))
    assert scheduler.handle(m.WorkerLost(1, expected=True, left=True)) == []
    assert scheduler.reissued == 0


def test_a_crash_while_one_is_told_to_leave_brings_the_number_that_was_asked_for() -> None:
    scheduler, _ = start()
    scheduler.handle(m.ResizeAsked(1))
    assert scheduler.handle(m.WorkerLost(0, reason="killed")) == []
    assert scheduler.handle(m.WorkerLost(1, expected=True, left=True)) == [m.Spawn(1)]
    assert (set(scheduler.workers), scheduler.target) == ({1}, 1)


def test_an_addition_that_the_system_refuses_is_done_without() -> None:
    scheduler, _ = start(Policy(window=2, max_window=2, restarts=0, restart_idle=False))
    assert scheduler.handle(m.ResizeAsked(3)) == [m.Spawn(2)]
    assert scheduler.handle(m.WorkerLost(2, reason="no room", started=False, refused=True)) == []
    assert (scheduler.target, scheduler.finished, scheduler.deaths) == (2, False, 0)


def test_the_window_follows_the_workers_and_stays_as_deep() -> None:
    scheduler, _ = start(Policy(window=4, max_window=32, prefetch=2))
    scheduler.window = 7
    scheduler.handle(m.ResizeAsked(4))
    assert (scheduler.window, scheduler.max_window) == (11, 64)
    scheduler.handle(m.ResizeAsked(1))
    assert (scheduler.window, scheduler.max_window) == (5, 16)
    scheduler.handle(m.ResizeAsked(1, window=20))
    assert (scheduler.window, scheduler.max_window) == (20, 20)


def test_close_drops_what_is_ready_and_waits_for_the_rest() -> None:
    scheduler, slots = start()
    tasks = [task for seq in range(3) for task in plan(scheduler, seq)]
    scheduler.handle(ready(tasks[1]))
    assert scheduler.handle(m.CloseAsked()) == [m.Finish()]
    assert not scheduler.drained
    assert scheduler.handle(m.Withdrawn(2, 0, 0)) == []
    assert scheduler.handle(ready(tasks[0])) == []
    assert scheduler.drained
    assert len(slots.coldest(0)) == 3
    assert scheduler.handle(m.WorkerLost(0)) == [], "nobody is replaced any more"


def test_a_released_slot_is_free() -> None:
    scheduler, slots = start()
    (task,) = plan(scheduler, 0)
    assert task.slot is not None
    scheduler.handle(ready(task))
    slots.lease(task.slot)
    scheduler.handle(m.Taken(0))
    assert scheduler.handle(m.Released(task.slot)) == []
    assert len(slots.coldest(0)) == 1


def test_impossible_events_tell_the_ticket_s_story() -> None:
    scheduler, _ = start()
    plan(scheduler, 0)
    with pytest.raises(IllegalMove, match=r"planned twice: ticket 0 \(attempt 0\): dispatched"):
        plan(scheduler, 0)
    with pytest.raises(IllegalMove, match="taken in state dispatched; ticket 0"):
        scheduler.handle(m.Taken(0))
    with pytest.raises(IllegalMove, match="ticket 7 was taken but is not open"):
        scheduler.handle(m.Taken(7))


def test_a_bound_ticket_without_streams_is_impossible() -> None:
    scheduler, _ = start(Policy(2, 2, bound=True), workers=1)
    (task,) = plan(scheduler, 0)
    scheduler.handle(m.SourceEnded(0, 0, 0, 0, task.slot, None))
    with pytest.raises(IllegalMove, match="every worker's stream has ended"):
        plan(scheduler, 1)


def test_workers_that_never_start_end_the_run_soon() -> None:
    scheduler = Scheduler(Policy(window=2, max_window=2, restarts=2), SlotTable(), workers=1)
    scheduler.handle(m.Planned(Ticket(0, 0, 0, [1], 5, 1)))
    for _ in range(2):
        commands = scheduler.handle(m.WorkerLost(0, reason="it fell", started=False))
        assert m.Spawn(0) in commands
    finish = [
        c for c in scheduler.handle(m.WorkerLost(0, reason="it fell", started=False)) if type(c) is m.Finish
    ]
    assert finish == [m.Finish("it fell: before it could take any work")]
    assert scheduler.finished


def test_without_healing_any_death_ends_the_run() -> None:
    scheduler = Scheduler(
        Policy(window=2, max_window=2, restarts=0, restart_idle=False), SlotTable(), workers=2
    )
    scheduler.handle(m.Planned(Ticket(0, 0, 0, [1], 5, 1)))
    commands = scheduler.handle(m.WorkerLost(1, reason="it fell"))
    assert m.Finish("it fell") in commands
    assert not any(type(command) is m.Spawn for command in commands)


def test_a_result_of_a_part_that_does_not_exist_is_dropped() -> None:
    """Its header was damaged on the way: it must not end the loop with an IndexError."""
    scheduler, _ = start()
    (task,) = plan(scheduler, 0)
    assert scheduler.handle(ready(task)._replace(part=7)) == []
    assert seqs(scheduler.handle(ready(task))) == [0]
