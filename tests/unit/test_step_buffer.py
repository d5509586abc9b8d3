"""What a step_buffer keeps: when a batch was given, in all of its rows."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from stoker._record.attribution import Attribution
from stoker._record.schema import STEP_COLUMNS, StepRow
from stoker._record.step_buffer import HELD_BACK, ROWS, StepBuffer
from stoker._runtime.scheduler.types import Spans
from tests.soak.interrupter import Interrupt, Place, Rehearsal

GIVEN, SEQ, PART = (STEP_COLUMNS.index(name) for name in ("given_ns", "seq", "part"))


class Owner:
    """Takes rows as a recorder does, and counts how often."""

    def __init__(self) -> None:
        self.ticks = 0
        self.taken: list[Any] = []

    def fold(self, step_buffer: StepBuffer) -> None:
        self.taken += step_buffer.take(final=False).tolist()

    def tick(self, step_buffer: StepBuffer, now_ns: int) -> None:
        self.ticks += 1
        step_buffer.due_ns = now_ns + 1000
        self.fold(step_buffer)

    def rest(self, step_buffer: StepBuffer) -> None:
        raise AssertionError("nobody asked for it")

    rested = rest


def _row(seq: int, given_ns: int, part: int = 0) -> StepRow:
    row = [0] * len(STEP_COLUMNS)
    row[GIVEN], row[SEQ], row[PART] = given_ns, seq, part
    return StepRow(*row)


def test_the_time_that_a_tick_takes_is_the_batchs_it_came_with():
    owner = Owner()
    step_buffer = StepBuffer(owner, Attribution())
    step_buffer.due_ns = 5
    step_buffer.write(_row(0, 4))
    step_buffer.write(_row(1, 6))
    assert owner.ticks == 1
    first, second = step_buffer.pending()[:, GIVEN].tolist()
    assert first == 4
    assert second > 6, "the clock's own time"
    assert step_buffer.record_ns == second - 6
    step_buffer.write(_row(2, 7))
    assert step_buffer.pending()[-1, GIVEN] == 7


def test_all_rows_of_a_split_ticket_are_given_at_once():
    step_buffer = StepBuffer(Owner(), Attribution())
    step_buffer.due_ns = 1 << 62
    for seq, part in ((0, 0), (1, 0), (1, 1)):
        step_buffer.write(_row(seq, 4, part))
    step_buffer.gave(9)
    assert step_buffer.pending()[:, GIVEN].tolist() == [4, 9, 9]
    step_buffer.pinned(9, 12)
    assert step_buffer.pending()[:, GIVEN].tolist() == [4, 12, 12]
    assert step_buffer.pin_ns == 3


def test_a_full_buffer_is_folded_but_for_its_last_rows():
    owner = Owner()
    step_buffer = StepBuffer(owner, Attribution())
    step_buffer.due_ns = 1 << 62
    for seq in range(ROWS + 3):
        step_buffer.write(_row(seq, seq))
    assert [row[SEQ] for row in owner.taken] == list(range(ROWS - HELD_BACK))
    assert step_buffer.rows == HELD_BACK + 3


def test_what_a_worker_measures_ends_a_row_of_steps():
    """The engine packs a row as its own columns and then all of ``Spans``."""
    assert StepRow._fields[-len(Spans._fields) :] == Spans._fields


class Interrupted(Owner):
    """Ctrl-C comes whenever it folds or ticks, the first few times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 5

    def fold(self, step_buffer: StepBuffer) -> None:
        self.left -= 1
        if self.left >= 0:
            raise KeyboardInterrupt
        super().fold(step_buffer)


@pytest.mark.parametrize("ticks", [False, True])
def test_after_an_interrupt_there_is_room_for_the_next_row(ticks: bool) -> None:
    """A full buffer that was not folded raised struct.error at the next batch, and at all later ones."""
    owner = Interrupted()
    step_buffer = StepBuffer(owner, Attribution())
    interrupts = 0
    for seq in range(3 * ROWS):
        step_buffer.due_ns = seq if ticks and seq % 32 == 31 else 1 << 62
        try:
            step_buffer.write(_row(seq, seq))
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 5
    rows = owner.taken + step_buffer.pending().tolist()
    assert [row[SEQ] for row in rows] == list(range(3 * ROWS))


def test_an_interrupt_between_two_bytecodes_costs_no_room() -> None:
    places = [place for place in _rehearsed() if place.code is StepBuffer.wrote.__code__]
    assert places
    for place in places:
        for occurrence in (32, 64, ROWS):
            step_buffer = StepBuffer(Owner(), Attribution())
            step_buffer.due_ns = 1 << 62
            with contextlib.suppress(KeyboardInterrupt), Interrupt(place, occurrence, "spares nothing"):
                for seq in range(ROWS + 1):
                    step_buffer.write(_row(seq, seq))
            for seq in range(3):
                step_buffer.write(_row(seq, seq))


def _rehearsed() -> list[Place]:
    step_buffer = StepBuffer(Owner(), Attribution())
    step_buffer.due_ns = 1 << 62
    with Rehearsal() as seen:
        for seq in range(ROWS + 1):
            step_buffer.write(_row(seq, seq))
    return list(seen.places)
