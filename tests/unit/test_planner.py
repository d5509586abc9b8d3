"""From what a sampler yields to tickets, and what happens when the sampler breaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.plan.planner import Planner
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.row_ranges import row_ranges


def planner(sampler: Iterable[Any], **changed: Any) -> Planner:
    arguments: dict[str, Any] = {
        "epoch": 4, "seed": 99, "batched": True, "splittable": True, "places": None, **changed,
    }  # fmt: skip
    return Planner(iter(sampler), **arguments)


def planned(plan: Planner) -> m.Planned:
    event = plan.plan()
    assert isinstance(event, m.Planned)
    return event


def test_tickets_are_numbered_and_carry_epoch_and_seed() -> None:
    plan = planner([[5, 6], [7]])
    first, second = planned(plan).ticket, planned(plan).ticket
    assert (first.epoch, first.seq, first.position, first.seed) == (4, 0, 0, 99)
    assert (first.indices, first.rows) == ([5, 6], 2)
    assert (second.seq, second.position, second.indices, second.rows) == (1, 1, [7], 1)
    assert isinstance(plan.plan(), m.PlanEnded)
    assert isinstance(plan.plan(), m.PlanEnded)
    assert plan.error is None


def test_a_large_batch_may_be_split_at_its_grid() -> None:
    assert planned(planner([list(range(100))])).ranges == row_ranges(100)
    assert planned(planner([tuple(range(40))])).ranges == row_ranges(40)


@pytest.mark.parametrize(
    "indices", [torch.arange(64), np.arange(64), {n: n for n in range(64)}], ids=["tensor", "array", "dict"]
)
def test_indices_that_cannot_be_cut_are_not_split(indices: Any) -> None:
    event = planned(planner([indices]))
    assert event.ranges == ()
    assert event.ticket.rows == 64
    assert event.ticket.indices is indices


def test_nothing_is_split_where_it_is_not_allowed() -> None:
    assert planned(planner([list(range(100))], splittable=False)).ranges == ()


def test_without_batches_an_index_is_left_alone() -> None:
    plan = planner(["key", 3, [1, 2]], batched=False)
    tickets = [planned(plan).ticket for _ in range(3)]
    assert [ticket.indices for ticket in tickets] == ["key", 3, [1, 2]]
    assert [ticket.rows for ticket in tickets] == [0, 0, 0]
    assert [ticket.position for ticket in tickets] == [0, 1, 2]


@pytest.mark.parametrize(("batched", "positions"), [(True, [0, 3, 4]), (False, [0, 1, 2])])
def test_by_sample_positions_count_samples(batched: bool, positions: list[int]) -> None:
    plan = planner([[1, 2, 3], [4], [5, 6]], batched=batched, places=lambda: (0, 1, 99))
    assert [planned(plan).ticket.position for _ in range(3)] == positions


def test_places_are_asked_for_once_the_sampler_is_open() -> None:
    """A sampler inside a generator begins its epoch when it is first pulled, and only then knows where it is."""
    said: list[str] = []

    def sampler() -> Iterator[list[int]]:
        said.append("open")
        yield from ([1, 2], [3, 4])

    def places() -> tuple[int, int, int]:
        said.append("asked")
        return 10, 3, 7

    plan = planner(sampler(), places=places)
    tickets = [planned(plan).ticket for _ in range(2)]
    assert [(ticket.position, ticket.seed) for ticket in tickets] == [(10, 7), (16, 7)]
    assert said == ["open", "asked"]


def test_a_batch_that_only_iterates_is_listed_once() -> None:
    ticket = planned(planner([iter([3, 1, 2])])).ticket
    assert ticket.indices == [3, 1, 2]
    assert ticket.rows == 3


def test_an_empty_batch_is_a_ticket_too() -> None:
    event = planned(planner([[], [1]]))
    assert event.ticket.indices == []
    assert event.ticket.rows == 0
    assert event.ranges == ()


def test_what_the_sampler_raises_waits_and_ends_the_plan() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1]
        raise KeyError("no such shard")

    plan = planner(broken())
    assert planned(plan).ticket.indices == [1]
    assert plan.error is None
    assert isinstance(plan.plan(), m.PlanEnded)
    assert isinstance(plan.error, KeyError)


def test_a_lazy_batch_that_breaks_waits_like_a_broken_sampler() -> None:
    """Batches planned before it are still due; raised out of ``plan`` it would overtake them."""

    def lazy() -> Iterator[int]:
        yield 1
        raise KeyError("no such row")

    plan = planner([[0], lazy(), [2]])
    planned(plan)
    assert isinstance(plan.plan(), m.PlanEnded)
    assert isinstance(plan.error, KeyError)


@pytest.mark.parametrize("indices", [7, torch.tensor(7)], ids=["int", "0-d tensor"])
def test_what_is_no_batch_is_left_for_its_worker_to_refuse(indices: Any) -> None:
    """So the error comes in its turn and the next batch after it, as in torch."""
    plan = planner([[0], indices, [2]])
    events = [planned(plan) for _ in range(3)]
    assert events[1].ticket.indices is indices
    assert (events[1].ticket.rows, events[1].ranges) == (0, ())
    assert events[2].ticket.indices == [2]


def test_an_empty_batch_takes_no_place_among_the_samples() -> None:
    plan = planner([[1, 2], [], [3]], places=lambda: (0, 1, 99))
    assert [planned(plan).ticket.position for _ in range(3)] == [0, 2, 2]


def test_an_interrupt_is_not_the_samplers_error() -> None:
    def interrupted() -> Iterator[list[int]]:
        raise KeyboardInterrupt
        yield []

    plan = planner(interrupted())
    with pytest.raises(KeyboardInterrupt):
        plan.plan()
    assert plan.error is None


def test_spares_are_what_was_planned_last_and_at_first_what_comes_next() -> None:
    plan = planner([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13]], spares=True)
    spares = [planned(plan).ticket.spares for _ in range(5)]
    assert spares == [
        (4, 5, 6, 7, 8, 9, 10, 11),
        (3, 2, 1, 7, 8, 9, 10, 11),
        (6, 5, 4, 3, 2, 1, 10, 11),
        (9, 8, 7, 6, 5, 4, 3, 2),
        (12, 11, 10, 9, 8, 7, 6, 5),
    ]
    assert isinstance(plan.plan(), m.PlanEnded)


def test_spares_without_batches() -> None:
    plan = planner([1, 2, 3], batched=False, spares=True)
    assert [planned(plan).ticket.spares for _ in range(3)] == [(2, 3), (1, 3), (2, 1)]


def test_spares_are_not_asked_for_unless_they_are_wanted() -> None:
    pulled: list[int] = []

    def sampler() -> Iterator[list[int]]:
        for number in range(5):
            pulled.append(number)
            yield [number]

    plan = planner(sampler())
    assert planned(plan).ticket.spares == ()
    assert pulled == [0]


def test_looking_ahead_has_an_end() -> None:
    """Batches of nothing have no spares to give."""
    plan = planner(([] for _ in iter(int, 1)), spares=True)
    assert planned(plan).ticket.indices == []


def test_looking_ahead_changes_neither_order_nor_number() -> None:
    batches = [[1], [2, 3], [], [4], 7]
    plan = planner(batches, spares=True)
    tickets = [planned(plan).ticket for _ in batches]
    assert [ticket.indices for ticket in tickets] == batches
    assert [ticket.seq for ticket in tickets] == [0, 1, 2, 3, 4]
    assert tickets[2].spares == (), "a batch without rows needs none"


def test_an_error_met_while_looking_ahead_is_due_in_its_turn() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1]
        yield [2]
        raise KeyError("no such shard")

    plan = planner(broken(), spares=True)
    assert planned(plan).ticket.spares == (2,)
    assert plan.error is None
    assert planned(plan).ticket.indices == [2]
    assert plan.error is None
    assert isinstance(plan.plan(), m.PlanEnded)
    assert isinstance(plan.error, KeyError)


def test_an_interrupt_while_looking_ahead_loses_no_ticket() -> None:
    class Sampler:
        def __init__(self) -> None:
            self.calls = 0

        def __iter__(self) -> Iterator[list[int]]:
            return self

        def __next__(self) -> list[int]:
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            if self.calls > 4:
                raise StopIteration
            return [self.calls]

    plan = planner(Sampler(), spares=True)
    with pytest.raises(KeyboardInterrupt):
        plan.plan()
    tickets = [planned(plan).ticket for _ in range(3)]
    assert [(ticket.seq, ticket.indices) for ticket in tickets] == [(0, [1]), (1, [3]), (2, [4])]


def test_an_ended_sampler_is_not_asked_again() -> None:
    class Sampler:
        def __init__(self) -> None:
            self.calls = 0

        def __iter__(self) -> Iterator[list[int]]:
            return self

        def __next__(self) -> list[int]:
            self.calls += 1
            if self.calls == 2:
                raise StopIteration
            return [self.calls]

    plan = planner(Sampler(), spares=True)
    assert planned(plan).ticket.indices == [1]
    assert isinstance(plan.plan(), m.PlanEnded)


def test_rows_known_to_kill_are_excluded_and_no_spares() -> None:
    killers = {2, 5}
    plan = planner([[1, 2, 3], [2, 5]], spares=True, killers=killers)
    first, second = planned(plan).ticket, planned(plan).ticket
    assert (first.excluded, first.spares) == ((1,), ())
    assert (second.excluded, second.spares) == ((0, 1), (3, 1))


def test_a_killer_learned_on_the_way_counts_from_the_next_ticket_on() -> None:
    killers: set[int] = set()
    plan = planner([[1], [1], [1]], killers=killers)
    assert planned(plan).ticket.excluded == ()
    killers.add(1)
    assert planned(plan).ticket.excluded == (0,)


@pytest.mark.parametrize("indices", [torch.tensor([4, 5]), np.array([4, 5])], ids=["tensor", "array"])
def test_killers_are_known_whatever_kind_of_integer_names_them(indices: Any) -> None:
    assert planned(planner([indices], killers={5})).ticket.excluded == (1,)


def test_a_killer_without_batches_is_row_nought() -> None:
    plan = planner([3, [1, 2]], batched=False, killers={3, "[1, 2]"})
    assert [planned(plan).ticket.excluded for _ in range(2)] == [(0,), (0,)]
