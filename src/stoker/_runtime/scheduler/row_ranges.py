"""The fixed row ranges that random numbers depend on, and the mixing of seeds.

A batch of n rows has ceil(n / 16) ranges, at most 8: the number depends on n alone. Seeding happens at the start of each range,
and a split never cuts one. So a batch is the same however many workers made it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

ROWS_PER_RANGE = 16
MAX_RANGES = 8
_MASK = (1 << 64) - 1


@lru_cache(maxsize=256)
def row_ranges(rows: int) -> tuple[tuple[int, int], ...]:
    """The (start, stop) row ranges of a batch with this many rows, in order, covering it exactly."""
    if rows <= 0:
        return ()
    count = min(MAX_RANGES, -(-rows // ROWS_PER_RANGE))
    return tuple((number * rows // count, (number + 1) * rows // count) for number in range(count))


@lru_cache(maxsize=256)
def share_ranges(ranges: tuple[tuple[int, int], ...], parts: int) -> tuple[tuple[int, int], ...]:
    """Row ranges joined into ``parts`` groups of neighbours, as even as possible. Never cuts a range."""
    count = len(ranges)
    parts = min(parts, count)
    edges = [number * count // parts for number in range(parts + 1)]
    return tuple((ranges[a][0], ranges[b - 1][1]) for a, b in pairwise(edges))


def mix(*words: int) -> int:
    """A well-spread 64-bit number that depends on every word and on their order (splitmix64 finaliser, chained)."""
    state = 0x9E3779B97F4A7C15
    for word in words:
        state = (state + word + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state
