"""What the explorer found in the scheduler, each as the plain sequence of events that led into it."""

from __future__ import annotations

import pytest

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotState, SlotTable
from stoker._runtime.scheduler.types import Receipt, Spans, Task, Ticket


class Bench:
    """A scheduler on a work bench: short words for the events these stories need."""

    def __init__(self, policy: Policy, workers: int = 2) -> None:
        self.slots = SlotTable()
        self.scheduler = Scheduler(policy, self.slots, workers)

    def plan(self, seq: int, rows: int = 1) -> list[Task]:
        ranges = row_ranges(rows) if rows > 16 else ()
        commands = self.scheduler.handle(m.Planned(Ticket(0, seq, seq, None, 0, rows), ranges))
        return dispatched(commands)

    def ready(self, task: Task, worker: int = 0) -> list[m.Command]:
        names = (task.ticket.seq, task.attempt, task.part.number, worker, task.slot, task.scratch)
        return self.scheduler.handle(m.BatchReady(*names, Receipt(nbytes=10), Spans()))

    def ended(self, task: Task, worker: int) -> list[m.Command]:
        names = (task.ticket.seq, task.attempt, task.part.number, worker, task.slot, task.scratch)
        return self.scheduler.handle(m.SourceEnded(*names))

    def withdrawn(self, task: Task) -> list[m.Command]:
        return self.scheduler.handle(m.Withdrawn(*key(task)))

    def lost(
        self, worker: int, claimed: Task | None = None, queued: tuple[Task, ...] = ()
    ) -> list[m.Command]:
        claim = None if claimed is None else key(claimed)
        return self.scheduler.handle(m.WorkerLost(worker, claim, frozenset(map(key, queued))))

    def state(self, task: Task) -> SlotState:
        assert task.slot is not None
        return self.slots.state(task.slot.index)

    def busy(self) -> int:
        return sum(self.slots.state(index) is SlotState.BUSY for index in range(len(self.slots)))


def key(task: Task) -> tuple[int, int, int]:
    return (task.ticket.seq, task.attempt, task.part.number)


def dispatched(commands: list[m.Command]) -> list[Task]:
    return [command.task for command in commands if isinstance(command, m.Dispatch)]


def delivered(commands: list[m.Command]) -> list[m.Deliver]:
    return [command for command in commands if isinstance(command, m.Deliver)]


SPLIT = Policy(window=2, max_window=2, split=True, restarts=0)
BOUND = Policy(window=4, max_window=4, bound=True, restarts=0)


def test_a_bound_task_issued_again_knows_how_far_its_stream_was() -> None:
    bench = Bench(BOUND, workers=1)
    tasks = [*bench.plan(0), *bench.plan(1)]
    again = dispatched(bench.lost(0))
    assert [task.pull for task in again] == [task.pull for task in tasks] == [0, 1]


def test_rows_an_unknown_worker_may_still_write_are_made_elsewhere() -> None:
    """A living worker had received part 0 and not claimed it; its late rows went into the delivered batch."""
    bench = Bench(SPLIT)
    first, second = bench.plan(0, rows=32)
    assert first.slot == second.slot
    bench.ready(second)
    again = dispatched(bench.lost(1))
    assert [key(task) for task in again] == [(0, 1, 0), (0, 1, 1)]
    assert bench.state(first) is SlotState.RETIRED
    assert again[0].slot == again[1].slot != first.slot
    assert bench.ready(first) == bench.ready(second) == []
    assert not delivered(bench.ready(again[0]))
    assert len(delivered(bench.ready(again[1]))) == 1


def test_rows_of_a_worker_known_to_be_dead_are_made_in_place() -> None:
    bench = Bench(Policy(window=2, max_window=2, split=True, restarts=1))
    first, second = bench.plan(0, rows=32)
    bench.ready(second)
    (again,) = dispatched(bench.lost(1, claimed=first))
    assert again.slot == first.slot
    assert len(delivered(bench.ready(again))) == 1


def test_a_death_counts_although_another_part_makes_the_ticket_start_anew() -> None:
    bench = Bench(SPLIT)
    _, second = bench.plan(0, rows=32)
    (again,) = dispatched(bench.lost(1, claimed=second))
    (deliver,) = delivered(bench.ready(again))
    assert [type(result) for result in deliver.results] == [m.BatchReady, m.Lost]


def test_a_ticket_made_anew_twice_gives_up_the_slot_it_has_now() -> None:
    bench = Bench(SPLIT)
    first, _ = bench.plan(0, rows=32)
    (again,) = dispatched(bench.lost(1, claimed=first))
    (third,) = dispatched(bench.lost(1))
    assert bench.state(again) is SlotState.RETIRED
    assert bench.state(third) is SlotState.BUSY
    assert bench.busy() == 2  # the rows' slot and one scratch slot


def test_a_split_ticket_whose_parts_are_all_lost_keeps_no_slot() -> None:
    bench = Bench(SPLIT)
    first, second = bench.plan(0, rows=32)
    assert not delivered(bench.lost(0, claimed=first, queued=(second,)))
    (deliver,) = delivered(bench.lost(1, claimed=second))
    assert {type(result) for result in deliver.results} == {m.Lost}
    assert bench.busy() == 0


def test_a_withdrawn_part_is_not_counted_again_when_a_worker_is_lost() -> None:
    bench = Bench(SPLIT)
    first, second = bench.plan(0, rows=32)
    bench.scheduler.handle(m.CloseAsked())
    bench.withdrawn(first)
    bench.lost(0, queued=(second,))
    assert bench.state(second) is SlotState.BUSY, "the other part can still be received and written"
    assert not bench.scheduler.drained
    bench.withdrawn(second)
    assert bench.scheduler.drained
    assert bench.busy() == 0


def test_after_close_the_slot_of_an_unknown_writer_is_not_free() -> None:
    bench = Bench(SPLIT)
    first, second = bench.plan(0, rows=32)
    bench.scheduler.handle(m.CloseAsked())
    bench.ready(second)
    bench.lost(1)
    assert bench.state(first) is SlotState.RETIRED
    assert bench.scheduler.drained


def test_the_end_of_a_stream_after_close_delivers_nothing() -> None:
    bench = Bench(BOUND)
    (first,), (second,) = bench.plan(0), bench.plan(1)
    bench.ready(second, worker=1)
    assert bench.scheduler.handle(m.CloseAsked()) == [m.Finish()]
    assert bench.ended(first, worker=0) == []
    assert bench.busy() == 0


def test_when_workers_die_out_the_dead_ones_owe_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._runtime.scheduler.deaths.DEATHS_LIMIT", 1)
    bench = Bench(Policy(window=2, max_window=2))
    (first,), (second,) = bench.plan(0), bench.plan(1)
    commands = bench.lost(0, claimed=first, queued=(second,))
    assert [type(command) for command in commands] == [m.Finish]
    assert not bench.scheduler.has_room()
    assert bench.ready(second) == [], "nothing is delivered after the finish"
    assert bench.scheduler.drained
    assert bench.lost(1) == [], "one finish, no more workers"
    assert bench.scheduler.handle(m.CloseAsked()) == []
    assert bench.busy() == 0


def test_bound_workers_are_not_resized_away() -> None:
    bench = Bench(BOUND)
    assert bench.scheduler.handle(m.ResizeAsked(1)) == []
    assert bench.scheduler.handle(m.ResizeAsked(3)) == []
