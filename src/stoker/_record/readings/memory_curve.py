"""Keeps readings of memory over time, few enough for a run of any length. Pure.

Each worker keeps its first reading and its last; of those between so many go, when there are too many, that the rest lies about
evenly over the run. So a series is bounded whatever its length, and that of a month is as even as that of an hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stoker._record.schema import MEMORY_COLUMNS

MOST_EACH = 120
"""Readings of one worker that are kept."""

MOST = 4096
"""Readings in all: with hundreds of workers each has fewer."""


class MemoryReading(NamedTuple):
    """One process at one moment: MEMORY_COLUMNS."""

    at_ns: int
    worker: int
    pid: int
    pss_bytes: int
    private_bytes: int


class MemoryCurve:
    """The readings of one loader. Used under its recorder's lock."""

    def __init__(self) -> None:
        self._readings: list[MemoryReading] = []

    def add(self, readings: Iterable[MemoryReading]) -> None:
        """What was read just now; moments as they are on the clock."""
        self._readings = thinned([*self._readings, *readings])

    def columns(self, began_ns: int) -> dict[str, list[int]]:
        """As the record has them: moments count from ``began_ns``."""
        return as_columns(each._replace(at_ns=max(0, each.at_ns - began_ns)) for each in self._readings)


def readings(columns: dict[str, list[int]]) -> list[MemoryReading]:
    """Return the readings of a record; none where it has no such series."""
    if any(name not in columns for name in MEMORY_COLUMNS):
        return []
    return list(map(MemoryReading, *(columns[name] for name in MEMORY_COLUMNS)))


def as_columns(found: Iterable[MemoryReading]) -> dict[str, list[int]]:
    """The way back; nothing for none."""
    columns = zip(*found, strict=True)
    return dict(zip(MEMORY_COLUMNS, map(list, columns), strict=False))


def thinned(found: Sequence[MemoryReading]) -> list[MemoryReading]:
    """No more than are kept, in the same order."""
    counts = Counter(each.worker for each in found)
    most = max(2, min(MOST_EACH, MOST // max(1, len(counts))))
    if max(counts.values(), default=0) <= most:
        return list(found)
    ends: dict[int, tuple[int, int]] = {}
    for each in found:
        ends[each.worker] = ends.get(each.worker, (each.at_ns, 0))[0], each.at_ns
    kept, taken = [], set[tuple[int, int]]()
    for each in found:
        first_ns, last_ns = ends[each.worker]
        # The first of every stretch. Stretches double, so that what is kept now is what would be kept of all there ever were.
        stretch = (each.at_ns - first_ns) >> ((last_ns - first_ns) * 2 // most).bit_length()
        few = counts[each.worker] <= most
        if few or each.at_ns == last_ns or (each.worker, stretch) not in taken:
            kept.append(each)
            taken.add((each.worker, stretch))
    return kept
