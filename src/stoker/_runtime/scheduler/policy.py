"""The constants behind decisions, each with its reason, and pure functions of observed values."""

from __future__ import annotations

from dataclasses import dataclass

SPLIT_PAYS_NS = 2_000_000
"""One worker makes a batch that takes less than this: two more messages would cost more than a split gains."""

COPY_OUT_BYTES = 16 * 1024
"""Batches up to this size are copied to the heap on delivery. That is cheaper than a lease, and frees the slot at once."""

LEASE_CAP = 512
"""Slots that the user may hold. Beyond that, batches are copied to the heap, so that mappings do not grow with held batches."""

DEEPEN_LIMIT = 16
"""Batches per worker to which the window may deepen if the user left ``prefetch_factor`` open."""

DEATHS_LIMIT = 30
"""The run ends after so many deaths without a delivered batch between them."""

EMPTY_LIMIT = 1000
"""So many consecutive batches without one good sample (``on_bad_sample="skip"``) are an error."""

PATIENCE_S = 30.0
"""A wait for one batch that is shorter than this causes no warning."""

PATIENCE_MEDIANS = 20
"""A longer wait causes a warning if it is this many times as long as recent batches took to make."""

RECENT_BATCHES = 64
"""Number of batch times in the median."""

BUDGET_SHARE = 4
"""By default undelivered batches may take a quarter of the available memory."""

GIVEN_SHARE = 2
"""A budget that the user gave is cut to half of the available memory: more would exhaust the machine."""

PRESSURE_SHARE = 10
PRESSURE_BYTES = 4 << 30
"""Memory is short when less than a tenth of it is available, and less than this: a tenth of a terabyte is enough."""

BUDGET_MATTERS_BYTES = 16 << 20
"""If the whole window takes less than this, available memory is not checked."""

BUDGET_INTERVAL_S = 0.5
"""The maximum age of a reading of available memory. A reading takes about 0.1 ms."""

IDLE_KEEP_BYTES = 64 << 20
IDLE_KEEP_SHARE = 8
"""The memory that an idle arena keeps of its free slots, so that the next epoch begins with mapped pages. A new page costs some
microseconds, a new gigabyte seconds. When memory is short, idle arenas release all of it.
"""

SIZE_MEMORY = 32
"""The next batch is expected to be as large as the largest of the last 32 to 64. So the estimate falls slowly."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the scheduler may do in one iteration. Fixed at its start.

    - ``window`` bounds the tickets that are planned and not taken.
    - ``max_window``: if larger, the window deepens while the consumer waits and a worker is idle.
    - ``prefetch``: tickets per worker. Both windows then follow the number of workers.
    - ``bound`` ties tickets to workers round-robin (iterable datasets, ``rng="torch"``).
    - ``streams``: tickets are pulled from an iterable dataset, by each worker from its own stream.
    - ``budget_bytes`` bounds undelivered bytes at the start; the engine adapts it to available memory. 0: no bound.
    - ``careful``: until the size of the first batch is known, there is at most one ticket per worker.
    - ``restarts``: how often a ticket that killed its worker is tried again.
    - ``restart_idle``: False ends the run when a worker without a ticket dies, as in torch.
    - ``exclude_killers``: a row that killed its worker that often is excluded, and its ticket is made without it.
    """

    window: int
    max_window: int
    in_order: bool = True
    bound: bool = False
    streams: bool = False
    split: bool = False
    restarts: int = 2
    restart_idle: bool = True
    exclude_killers: bool = False
    budget_bytes: int = 0
    careful: bool = False
    shared_memory: bool = True
    prefetch: int = 0


def lease_pays(nbytes: int, leased: int) -> bool:
    """Whether a delivered batch stays in its slot (a lease) or is copied to the heap."""
    return nbytes > COPY_OUT_BYTES and leased < LEASE_CAP


def allowed_bytes(
    *, given_bytes: int | None, available_bytes: int | None, held_bytes: int, sharers: int
) -> int:
    """The bytes that a pool may make and not deliver; 0 for no bound, if nothing is known.

    ``held_bytes`` is the memory that the pool uses for this already; it counts as available. ``sharers`` is the number of local
    ranks times loaders, which share the available memory. A budget that the user gave belongs to one loader.
    """
    if available_bytes is None:
        return given_bytes or 0
    room = available_bytes + held_bytes
    if given_bytes is not None:
        return max(1, min(given_bytes, room // GIVEN_SHARE))
    return max(1, room // BUDGET_SHARE // max(1, sharers))


def idle_keep_bytes(budget_bytes: int) -> int:
    """The bytes that an idle arena may keep: a small part of its budget, but never less than a negligible amount."""
    if not budget_bytes:
        return IDLE_KEEP_BYTES
    return min(budget_bytes, max(IDLE_KEEP_BYTES, budget_bytes // IDLE_KEEP_SHARE))


def memory_is_short(available_bytes: int | None, total_bytes: int | None) -> bool:
    """Whether memory is so short that arenas should release what they do not need."""
    if available_bytes is None or total_bytes is None:
        return False
    return available_bytes < min(total_bytes // PRESSURE_SHARE, PRESSURE_BYTES)


def patience_s(median_ns: float) -> float:
    """How long a wait for one batch may take before it causes a warning."""
    return max(PATIENCE_S, PATIENCE_MEDIANS * median_ns / 1e9)


def parts_for(*, idle: int, ranges: int, first: bool, expected_ns: int) -> int:
    """The number of parts of the next ticket; 1 means that it stays whole."""
    if idle < 2 or ranges < 2:
        return 1
    if first or expected_ns > SPLIT_PAYS_NS:
        return min(idle, ranges)
    return 1
