"""What one iteration writes down, row by row, as it goes. The hot path: one call and one packed row per batch."""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np

from stoker._metrics.blame import Array, Folder
from stoker._metrics.record import STEP_COLUMNS

_ROW = struct.Struct(f"<{len(STEP_COLUMNS)}q")
_ROW_BYTES = _ROW.size
_GIVEN = struct.Struct("<q")
_GIVEN_AT = 8 * STEP_COLUMNS.index("given_ns")
ROWS = 4096
"""Rows between two foldings into sums: one takes one or two milliseconds."""

HELD_BACK = 8
"""Rows that stay when others are folded: what came after a batch tells whether order held it back."""


class Owner(Protocol):
    """A recorder, as its tapes see it."""

    def fold(self, tape: Tape) -> None: ...

    def tick(self, tape: Tape, now_ns: int) -> None: ...


class Tape:
    """Rows in the order of delivery. Written on the thread that iterates, read by its recorder.

    ``folder`` knows the workers of the pool that makes the batches. ``due_ns`` is when the recorder wants to be called again.
    """

    def __init__(self, owner: Owner, folder: Folder) -> None:
        self.folder = folder
        self.rows = 0
        self.pin_ns = 0
        self.given_ns = 0
        """When the last batch was given that was folded; 0: none was."""
        self.due_ns = 0
        self.closed = False
        self._owner = owner
        self._buffer = bytearray(_ROW_BYTES * ROWS)

    def write(self, *values: int) -> None:
        """One row: STEP_COLUMNS' values in their order, moments as they are on the clock."""
        if self.rows == ROWS:
            self._owner.fold(self)
        _ROW.pack_into(self._buffer, self.rows * _ROW_BYTES, *values)
        self.rows += 1
        if values[3] >= self.due_ns:
            self._owner.tick(self, values[3])

    def pinned(self, began_ns: int, ended_ns: int) -> None:
        """The batch written last was copied into pinned memory before it was given."""
        if self.rows:
            self.pin_ns += ended_ns - began_ns
            _GIVEN.pack_into(self._buffer, (self.rows - 1) * _ROW_BYTES + _GIVEN_AT, ended_ns)

    def pending(self) -> Array:
        """A copy of the rows that are not folded yet."""
        taken = bytes(memoryview(self._buffer)[: self.rows * _ROW_BYTES])
        rows: Array = np.frombuffer(taken, np.int64).reshape(-1, len(STEP_COLUMNS))
        return rows

    def take(self, *, final: bool) -> Array:
        """Those rows, which are gone from here; the last ones stay unless there will be no more."""
        rows = self.pending()
        kept = 0 if final else min(len(rows), HELD_BACK)
        taken = rows[: len(rows) - kept]
        if kept:
            self._buffer[: kept * _ROW_BYTES] = rows[len(rows) - kept :].tobytes()
        self.rows = kept
        return taken
