"""Buffers the step rows of one iteration. The hot path: one call and one packed row per batch."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from stoker._record.attribution import Array, Attribution
from stoker._record.schema import STEP_COLUMNS, StepRow

_ROW = struct.Struct(f"{len(STEP_COLUMNS)}q")
_ROW_BYTES = _ROW.size
pack_row = _ROW.pack_into
_GIVEN = struct.Struct("q")
_GIVEN_AT = 8 * STEP_COLUMNS.index("given_ns")
_ASKED_AT = 8 * STEP_COLUMNS.index("asked_ns")
_TICKET = slice(8 * STEP_COLUMNS.index("epoch"), 8 * STEP_COLUMNS.index("part"))
"""Where a row says which ticket it is of: epoch and seq, neighbours."""
ROWS = 1024
"""Rows between two folds into sums. One fold takes half a millisecond, and its rows fit into the CPU's cache."""

_FIRST_ROWS = 32
"""Rows that a new buffer has room for. It is small, because a script may have thousands of short loaders."""

_FULL_BYTES = _ROW_BYTES * ROWS
_MOST_BYTES = _FULL_BYTES + _ROW_BYTES
"""The last row is for the batch after an interrupt, which came before the others were folded."""

HELD_BACK = 8
"""Rows that stay when others are folded: the batches after a batch show whether order delayed it."""


QUICK_NS = 500_000
"""Batches that come faster than this do not all get a row, which would take 1 % of that time, and more.

Rows are written for one stretch in sixteen then. Steps between two stretches are counted, with their rows, bytes and waits. How
those waits divide is taken from the stretch before.
"""

STRETCH_ROWS = 256
"""Rows between two looks at how fast batches come."""

LONG_WAIT_NS = 5_000_000
"""A step that waits longer has its row in any case."""
_REST = 15
_LONGEST_REST_NS = 250_000_000


def rest_ns(span_ns: int, rows: int) -> int:
    """Return for how long steps may go without rows, after ``rows`` of them took ``span_ns``; 0: not at all."""
    if span_ns >= rows * QUICK_NS:
        return 0
    return min(_REST * span_ns, _LONGEST_REST_NS)


@dataclass(slots=True)
class QuickSteps:
    """Sums of steps that got no row. The thread that iterates writes them, its recorder reads them."""

    waits_ns: list[int] = field(default_factory=list)
    """From each call of ``next()`` to its return."""
    rows: int = 0
    nbytes: int = 0
    ready: int = 0
    """How many were there before they were asked for."""
    given_ns: int = 0
    """When the last one was given."""

    def note(self, asked_ns: int, given_ns: int, *, rows: int, nbytes: int, ready: bool) -> None:
        """Count one step."""
        self.rows += rows
        self.nbytes += nbytes
        self.ready += ready
        self.given_ns = given_ns
        self.waits_ns.append(given_ns - asked_ns)  # the last line: a reader counts by it


class StepBufferOwner(Protocol):
    """A recorder, as its step buffers see it."""

    def fold(self, step_buffer: StepBuffer) -> None: ...

    def tick(self, step_buffer: StepBuffer, now_ns: int) -> None: ...

    def rest(self, step_buffer: StepBuffer) -> None: ...

    def rested(self, step_buffer: StepBuffer) -> None: ...


class StepBuffer:
    """Rows in the order of delivery. Written on the thread that iterates, read by its recorder.

    ``attribution`` knows the workers of the pool that makes the batches. ``due_ns`` is when the recorder wants to be called again.
    """

    def __init__(self, owner: StepBufferOwner, attribution: Attribution) -> None:
        self.attribution = attribution
        self.pin_ns = 0
        self.copy_ns = 0
        self.record_ns = 0
        """Time that the recorder itself took."""
        self.last = (0, 0)
        """Epoch of the last batch that was folded, and when it was given; zeros: none was."""
        self.due_ns = 0
        self.closed = False
        self.quick: QuickSteps | None = None
        """The steps that got no row since the last one that did; None while every step gets one."""
        self.buffer = bytearray(_ROW_BYTES * _FIRST_ROWS)
        self.end = 0
        """Where in the buffer the next row goes."""
        self._owner = owner

    @property
    def rows(self) -> int:
        """Return how many rows are not folded yet."""
        return self.end // _ROW_BYTES

    @property
    def given_ns(self) -> int:
        """Return when the batch written last was handed over; 0: none was."""
        if self.quick is not None and self.quick.given_ns:
            return self.quick.given_ns
        if not self.end:
            return self.last[1]
        (given_ns,) = _GIVEN.unpack_from(self.buffer, self.end - _ROW_BYTES + _GIVEN_AT)
        return int(given_ns)

    def write(self, row: StepRow) -> None:
        """Append one row, with moments as they are on the clock."""
        pack_row(self.buffer, self.end, *row)
        if self.wrote(row.given_ns):
            self.recorded(row.given_ns, time.monotonic_ns())

    def wrote(self, given_ns: int) -> bool:
        """Do what is due after a row was packed at ``end``. Callers that cannot afford the call of ``write`` pack it themselves.

        Return whether this took time that the consumer waited for. Then call ``recorded`` after the ticket's last row.
        """
        end = self.end + _ROW_BYTES
        if end == len(self.buffer):
            # Before the row counts: after an interrupt, anywhere from here on, there is room for the next one.
            more = min(end, _MOST_BYTES - end) if end < _MOST_BYTES else _ROW_BYTES
            self.buffer = self.buffer + bytes(more)  # another thread may look at the old one
        self.end = end
        if given_ns >= self.due_ns:
            self._owner.tick(self, given_ns)
            return True
        if end >= _FULL_BYTES:
            self._owner.fold(self)
            return True
        return False

    @staticmethod
    def end_of(rows: int) -> int:
        """Return the value of ``end`` for so many rows."""
        return rows * _ROW_BYTES

    def span_ns(self) -> int:
        """Return the time from the first of these rows to the last."""
        (asked_ns,) = _GIVEN.unpack_from(self.buffer, _ASKED_AT)
        return self.given_ns - int(asked_ns)

    def rest(self) -> None:
        """Fold the rows, and count steps in ``quick`` only, until ``rested``."""
        self._owner.rest(self)
        self.quick = QuickSteps()

    def rested(self) -> None:
        """Give steps rows again. Idempotent."""
        if self.quick is not None:
            self._owner.rested(self)

    def gave(self, given_ns: int) -> None:
        """Correct when the batch written last, in one row or several, was handed over."""
        end = self.end
        ticket = self.buffer[end - _ROW_BYTES + _TICKET.start : end - _ROW_BYTES + _TICKET.stop]
        while (
            end and self.buffer[end - _ROW_BYTES + _TICKET.start : end - _ROW_BYTES + _TICKET.stop] == ticket
        ):
            end -= _ROW_BYTES
            _GIVEN.pack_into(self.buffer, end + _GIVEN_AT, given_ns)

    def recorded(self, began_ns: int, ended_ns: int) -> None:
        """Note that the batch written last waited for the recorder before it was handed over."""
        if self.end:  # some rows always stay, unless the recorder was unplugged
            self.record_ns += ended_ns - began_ns
            self.gave(ended_ns)

    def pinned(self, began_ns: int, ended_ns: int) -> None:
        """Note that the batch written last was copied into pinned memory before it was handed over."""
        if self.end:  # some rows always stay
            self.pin_ns += ended_ns - began_ns
            self.gave(ended_ns)

    def copied(self, began_ns: int, ended_ns: int) -> None:
        """Note that copies of later batches to the device were begun before the batch written last was handed over."""
        if self.end:
            self.copy_ns += ended_ns - began_ns
            self.gave(ended_ns)

    def pending(self) -> Array:
        """Return a copy of the rows that are not folded yet."""
        taken = bytes(memoryview(self.buffer)[: self.end])
        rows: Array = np.frombuffer(taken, np.int64).reshape(-1, len(STEP_COLUMNS))
        return rows

    def take(self, *, final: bool) -> Array:
        """Remove and return those rows. The last ones stay, unless no more will come."""
        rows = self.pending()
        kept = 0 if final else min(len(rows), HELD_BACK)
        taken = rows[: len(rows) - kept]
        if kept:
            self.buffer[: kept * _ROW_BYTES] = rows[len(rows) - kept :].tobytes()
        self.end = kept * _ROW_BYTES
        return taken
