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

BUDGET_SHARE = 4
"""By default a loader may fill a quarter of what is available with batches that nobody has taken yet."""

GIVEN_SHARE = 2
"""A budget that the user gave is cut to half of what is available: beyond it lies the machine's end, not a matter of taste."""

PRESSURE_SHARE = 10
PRESSURE_BYTES = 4 << 30
"""Memory is short when less than a tenth of it is available, and less than this: a tenth of a terabyte is plenty."""

BUDGET_MATTERS_BYTES = 16 << 20
"""A window whose batches are smaller than this in all is no matter for memory: what is available is then not looked at."""

BUDGET_INTERVAL_S = 0.5
"""How old the reading of available memory may be. One takes about 0.1 ms."""

IDLE_KEEP_BYTES = 64 << 20
IDLE_KEEP_SHARE = 8
"""What an idle arena keeps of its free slots, so that the next epoch begins in memory that is already mapped: a page that has to be
made anew costs some microseconds, a gigabyte seconds. When memory is short idle arenas give all of it back.
"""

SIZE_MEMORY = 32
"""The next batch is expected to be as large as the largest of the last 32 to 64: smaller ones after it forgive slowly."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the scheduler may do in one iteration. Fixed at its start.

    ``window`` bounds tickets planned but not taken; with ``max_window`` above it, the window deepens while the consumer waits and
    a worker idles. With ``prefetch`` both are for the workers there are at the start, that many tickets for each, and follow when
    workers come or go. ``bound`` ties tickets to workers round-robin (iterable datasets, ``rng="torch"``); ``streams`` tells that
    they are pulled from an iterable dataset, each worker's from its own stream. ``budget_bytes`` bounds what is made and not
    taken, to begin with: the engine moves it as memory comes and goes; 0 means unbounded. With ``careful`` there is no more than
    a ticket per worker before the size of the first batch is known. ``restarts`` is how often a ticket that killed its worker is
    tried again; without ``heal`` the death of a worker that was on no ticket ends the run too, as in torch. With ``sift`` a row
    that killed its worker that often is excluded and its ticket made without it.
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
    careful: bool = False
    shared_memory: bool = True
    prefetch: int = 0


def lease_pays(nbytes: int, leased: int) -> bool:
    """Whether a delivered batch stays in its slot (a lease) or is copied out of it."""
    return nbytes > COPY_OUT_BYTES and leased < LEASE_CAP


def allowed_bytes(
    *, given_bytes: int | None, available_bytes: int | None, held_bytes: int, sharers: int
) -> int:
    """How many bytes a pool may have made and not delivered; 0 means unbounded, because nothing is known.

    ``held_bytes`` is what the pool has taken for that already: it would be available without the pool. ``sharers`` counts those
    who reckon with the same memory, local ranks times loaders; a budget that was given is one loader's own.
    """
    if available_bytes is None:
        return given_bytes or 0
    room = available_bytes + held_bytes
    if given_bytes is not None:
        return max(1, min(given_bytes, room // GIVEN_SHARE))
    return max(1, room // BUDGET_SHARE // max(1, sharers))


def idle_keep_bytes(budget_bytes: int) -> int:
    """What an idle arena may keep: a small part of what it may fill, but never less than is nothing to any machine."""
    if not budget_bytes:
        return IDLE_KEEP_BYTES
    return min(budget_bytes, max(IDLE_KEEP_BYTES, budget_bytes // IDLE_KEEP_SHARE))


def memory_is_short(available_bytes: int | None, total_bytes: int | None) -> bool:
    """Whether everybody should give back what they can do without."""
    if available_bytes is None or total_bytes is None:
        return False
    return available_bytes < min(total_bytes // PRESSURE_SHARE, PRESSURE_BYTES)


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
