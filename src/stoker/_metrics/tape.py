"""What one iteration writes down, row by row, as it goes. The hot path: one call and one packed row per batch."""

from __future__ import annotations

import struct
from collections.abc import Callable

from stoker._metrics.record import STEP_COLUMNS

ROW = struct.Struct(f"<{len(STEP_COLUMNS)}q")
ROWS = 1024
"""Rows between two foldings into sums: one takes below a millisecond."""


class Tape:
    """Rows in the order of delivery, with STEP_COLUMNS' values as they are on the clock. One thread: the one that iterates.

    ``pool`` tells the workers of one pool from those of another. When it is full it is handed to ``fold``, which empties it.
    """

    def __init__(self, pool: int, fold: Callable[[Tape], None]) -> None:
        self.pool = pool
        self.rows = 0
        self.buffer = bytearray(ROW.size * ROWS)
        self._fold = fold

    def write(self, *values: int) -> None:
        """One row: STEP_COLUMNS' values in their order."""
        ROW.pack_into(self.buffer, self.rows * ROW.size, *values)
        self.rows += 1
        if self.rows == ROWS:
            self._fold(self)

    def clear(self) -> None:
        """Its rows were taken."""
        self.rows = 0
