"""Counts what the cache did, per worker: plain integers, with no lock, because one thread adds to each.

a worker's main thread    counters()                     adds to its own
its fetch threads         adopt(counters of the worker)  add to a part of these
whoever reports           CacheCounters.totals()         reads all, on any thread
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class CacheTotals(NamedTuple):
    """The sums of a worker since it started."""

    hits: int
    misses: int
    hit_bytes: int
    stored_bytes: int
    saved_ns: int
    passed: int


class CacheCounters:
    """What one worker fetched through caches. One thread writes; any thread may read.

    ``misses`` are samples that were made. ``passed`` are those among them that could not be kept, or did not fit.
    ``saved_ns`` adds up what the samples of the hits cost when they were made.
    """

    __slots__ = ("_parts", "hit_bytes", "hits", "misses", "passed", "saved_ns", "stored_bytes")

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.hit_bytes = 0
        self.stored_bytes = 0
        self.saved_ns = 0
        self.passed = 0
        self._parts: list[CacheCounters] = []

    def part(self) -> CacheCounters:
        """Return counters for another thread of this worker. ``totals`` includes them."""
        part = CacheCounters()
        self._parts.append(part)
        return part

    def totals(self) -> CacheTotals:
        """Return the sums, with those of all parts."""
        own = CacheTotals(
            self.hits, self.misses, self.hit_bytes, self.stored_bytes, self.saved_ns, self.passed
        )
        if not self._parts:
            return own
        rows = [own, *(part.totals() for part in list(self._parts))]
        return CacheTotals(*(sum(column) for column in zip(*rows, strict=True)))


class _ThreadCounters(threading.local):
    counters: CacheCounters | None = None


_current = _ThreadCounters()


def counters() -> CacheCounters:
    """Return the counters of this thread; new ones at the first call. In a forked process they go on from the parent's."""
    found = _current.counters
    if found is None:
        found = _current.counters = CacheCounters()
    return found


def used() -> CacheCounters | None:
    """Return the counters of this thread; None if nothing was counted on it yet."""
    return _current.counters


def adopt(worker: CacheCounters) -> None:
    """Make this thread count for a worker: called once by each of its fetch threads."""
    _current.counters = worker.part()
