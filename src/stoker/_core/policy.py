"""The numbers behind decisions, in one place, each with its reason. Pure functions of what was observed."""

from __future__ import annotations

from dataclasses import dataclass

SPLIT_PAYS_NS = 2_000_000
"""A batch that takes less than this is made by one worker: two more messages would eat the gain."""

COPY_OUT_BYTES = 16 * 1024
"""Batches up to this size are copied to the heap on delivery: cheaper than a lease, and the slot is free at once."""

LEASE_CAP = 512
"""Slots the user may hold. Beyond it batches are copied to the heap: mappings must not grow with what people keep."""

DEEPEN_LIMIT = 16
"""How many batches per worker the window may deepen to when the user left ``prefetch_factor`` open."""

DEATHS_LIMIT = 30
"""Deaths without one delivered batch between them after which the run ends."""

EMPTY_LIMIT = 1000
"""Batches in a row of which no sample was good (``on_bad_sample="skip"``) after which it is an error."""

PATIENCE_S = 30.0
"""A wait for one batch below this is never worth a warning."""

PATIENCE_MEDIANS = 20
"""Beyond it, a wait is odd when it is this many times as long as recent batches took to make."""

RECENT_BATCHES = 64
"""How many batch times the median is taken of."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the scheduler may do in one iteration. Fixed at its start.

    ``window`` bounds tickets planned but not taken; with ``max_window`` above it, the window deepens while the consumer
    waits and a worker idles. ``bound`` ties tickets to workers round-robin (iterable datasets, ``rng="torch"``); ``streams`` tells
    that they are pulled from an iterable dataset, each worker's from its own stream.
    ``budget_bytes`` bounds what is made and not taken; 0 means unbounded. ``restarts`` is how often a ticket that killed its
    worker is tried again; without ``heal`` the death of a worker that was on no ticket ends the run too, as in torch. With
    ``sift`` a row that killed its worker that often is excluded and its ticket made without it.
    """

    window: int
    max_window: int
    in_order: bool = True
    bound: bool = False
    streams: bool = False
    split: bool = False
    restarts: int = 2
    heal: bool = True
    sift: bool = False
    budget_bytes: int = 0
    shared_memory: bool = True


def lease_pays(nbytes: int, leased: int) -> bool:
    """Whether a delivered batch stays in its slot (a lease) or is copied out of it."""
    return nbytes > COPY_OUT_BYTES and leased < LEASE_CAP


def patience_s(median_ns: float) -> float:
    """How long a wait for one batch may take before it is worth a warning."""
    return max(PATIENCE_S, PATIENCE_MEDIANS * median_ns / 1e9)


def parts_for(*, idle: int, ranges: int, first: bool, expected_ns: int) -> int:
    """Into how many parts the next ticket goes; 1 means it stays whole."""
    if idle < 2 or ranges < 2:
        return 1
    if first or expected_ns > SPLIT_PAYS_NS:
        return min(idle, ranges)
    return 1
