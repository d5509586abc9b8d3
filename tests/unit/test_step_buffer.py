"""What a tape keeps: when a batch was given, in all of its rows."""

from __future__ import annotations

from typing import Any

from stoker._record.attribution import Attribution
from stoker._record.schema import STEP_COLUMNS
from stoker._record.step_buffer import HELD_BACK, ROWS, StepBuffer

GIVEN, SEQ, PART = (STEP_COLUMNS.index(name) for name in ("given_ns", "seq", "part"))


class Owner:
    """Takes rows as a recorder does, and counts how often."""

    def __init__(self) -> None:
        self.ticks = 0
        self.taken: list[Any] = []

    def fold(self, tape: StepBuffer) -> None:
        self.taken += tape.take(final=False).tolist()

    def tick(self, tape: StepBuffer, now_ns: int) -> None:
        self.ticks += 1
        tape.due_ns = now_ns + 1000
        self.fold(tape)


def _row(seq: int, given_ns: int, part: int = 0) -> list[int]:
    row = [0] * len(STEP_COLUMNS)
    row[GIVEN], row[SEQ], row[PART] = given_ns, seq, part
    return row


def test_the_time_that_a_tick_takes_is_the_batchs_it_came_with():
    owner = Owner()
    tape = StepBuffer(owner, Attribution())
    tape.due_ns = 5
    tape.write(*_row(0, 4))
    tape.write(*_row(1, 6))
    assert owner.ticks == 1
    first, second = tape.pending()[:, GIVEN].tolist()
    assert first == 4
    assert second > 6, "the clock's own time"
    assert tape.record_ns == second - 6
    tape.write(*_row(2, 7))
    assert tape.pending()[-1, GIVEN] == 7


def test_all_rows_of_a_split_ticket_are_given_at_once():
    tape = StepBuffer(Owner(), Attribution())
    tape.due_ns = 1 << 62
    for seq, part in ((0, 0), (1, 0), (1, 1)):
        tape.write(*_row(seq, 4, part))
    tape.gave(9)
    assert tape.pending()[:, GIVEN].tolist() == [4, 9, 9]
    tape.pinned(9, 12)
    assert tape.pending()[:, GIVEN].tolist() == [4, 12, 12]
    assert tape.pin_ns == 3


def test_a_full_tape_is_folded_but_for_its_last_rows():
    owner = Owner()
    tape = StepBuffer(owner, Attribution())
    tape.due_ns = 1 << 62
    for seq in range(ROWS + 3):
        tape.write(*_row(seq, seq))
    assert [row[SEQ] for row in owner.taken] == list(range(ROWS - HELD_BACK))
    assert tape.rows == HELD_BACK + 3
