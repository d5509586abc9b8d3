"""The data types of the engine: immutable, hashable, without behaviour.

They are named tuples, not frozen dataclasses: a batch makes about a dozen of them, and a named tuple is built in a third of the
time (docs/adr/0003-named-tuples.md).
"""

from __future__ import annotations

from typing import NamedTuple


class SlotRef(NamedTuple):
    """One use of one slot. The generation tells it from earlier and later uses of the same memory."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    generation: int


class Ticket(NamedTuple):
    """One batch to make.

    - ``seq`` numbers the tickets of one iteration in delivery order.
    - ``position`` is the batch's place in the epoch. It keeps its meaning when an epoch is resumed.
    - ``indices`` is what the sampler yielded, or None for "pull the next" (iterable datasets).
    - ``seed`` is the iteration's base seed.
    - ``plan_state`` is the sampler's state just after this ticket. Resume needs it, because samplers run ahead of delivery.
    - ``excluded`` are rows known to kill their worker.
    - ``spares`` are indices that may replace a bad one when a batch has no good one (``on_bad_sample="replace"``).
    - ``number`` counts the batches of the epoch before it, ``sample`` the samples. Unlike ``seq``, both continue after a resume.
    """

    epoch: int
    seq: int
    position: int
    indices: object | None
    seed: int
    rows: int = 0
    plan_state: object | None = None
    excluded: tuple[int, ...] = ()
    spares: tuple[object, ...] = ()
    number: int = 0
    sample: int = 0


class StreamStart(NamedTuple):
    """Where streams continue in the middle of an epoch: batches pulled from each, and whose turn it is among those ``live``."""

    pulls: dict[int, int]
    live: tuple[int, ...]
    turn: int


class Part(NamedTuple):
    """Rows ``start`` to ``stop`` of a ticket, number ``number`` of ``count``. A whole ticket is one part."""

    number: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    start: int
    stop: int


class Task(NamedTuple):
    """A part of a ticket as it goes to a worker.

    - ``slot`` takes the batch's rows; None for an executor without shared memory.
    - ``scratch`` is set only for split tickets: the part's own slot for everything but rows.
    - ``worker`` is set if the task is bound to one worker.
    - ``pull`` then counts the tasks bound to that worker before. A replacement winds its iterable dataset forward by so many.
    """

    ticket: Ticket
    part: Part
    attempt: int
    slot: SlotRef | None
    scratch: SlotRef | None = None
    worker: int | None = None
    pull: int = 0


class Spans(NamedTuple):
    """Times of one task on the monotonic clock, and the worker's measurements of it; 0 for a value that was not measured.

    ``cpu_ns`` and ``runq_ns`` count from the worker's last reading, and ``metered_ns`` is the time at work that they cover.
    ``slow_row`` is the row that took longest and ``slow_ns`` its time; -1 if rows were not timed. The record has the same names
    in the same order: they are the last columns of ``StepRow``.
    """

    dispatched_ns: int = 0
    received_ns: int = 0
    fetched_ns: int = 0
    collated_ns: int = 0
    sent_ns: int = 0
    cpu_ns: int = 0
    runq_ns: int = 0
    metered_ns: int = 0
    slow_row: int = -1
    slow_ns: int = 0


class Receipt(NamedTuple):
    """Where a result is: the pickled skeleton in the slot, the bytes of the slot in use, or an object on the heap.

    ``nbytes`` is an estimate for objects on the heap. ``shared_bytes`` is the end of all rows in the slot that the parts of a
    split ticket share. It is the same for all parts that put their rows there.
    """

    root_offset: int = 0
    root_bytes: int = 0
    nbytes: int = 0
    flags: int = 0
    heap: object | None = None
    shared_bytes: int = 0
