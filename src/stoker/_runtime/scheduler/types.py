"""The nouns of the engine. Immutable, hashable, free of behaviour.

They are named tuples, not frozen dataclasses: a batch makes about a dozen of them and a named tuple is built in a third of the time
(docs/adr/0003-named-tuples.md).
"""

from __future__ import annotations

from typing import NamedTuple


class SlotRef(NamedTuple):
    """One use of one slot. The generation tells this use from earlier and later ones of the same memory."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    generation: int


class Ticket(NamedTuple):
    """One batch to make.

    ``seq`` numbers the tickets of one iteration in delivery order; ``position`` is the batch's place in the epoch,
    which keeps its meaning when an epoch is resumed. ``indices`` is what the sampler yielded, or None for "pull the next"
    (iterable datasets). ``seed`` is the iteration's base seed. ``plan_state`` is what resume needs to know about the
    sampler just after this ticket, because samplers run ahead of delivery. ``excluded`` are rows known to kill their worker;
    ``spares`` are indices that may stand in for a bad one when a batch has no other (``on_bad_sample="replace"``). ``number``
    counts the batches of the epoch before it, ``sample`` the samples; unlike ``seq`` both go on when an epoch is resumed.
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
    """Where streams are taken up in the middle of an epoch: batches pulled of each, and whose turn it is of those ``live``."""

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

    ``slot`` is where the batch's rows go, None for an executor without shared memory. ``scratch`` is set only for split
    tickets: the part's own slot for all that is not rows. ``worker`` is set when the task is bound to one worker; ``pull`` then
    counts the tasks bound to that worker before, so that a replacement knows how far to wind an iterable dataset forward.
    """

    ticket: Ticket
    part: Part
    attempt: int
    slot: SlotRef | None
    scratch: SlotRef | None = None
    worker: int | None = None
    pull: int = 0


class Spans(NamedTuple):
    """Moments of one task on the monotonic clock, and what the worker measured of it; 0 where it was not.

    ``cpu_ns`` and ``runq_ns`` are the worker's since its last reading, and ``metered_ns`` the time at work that they are about.
    ``slow_row`` is the row that took longest, ``slow_ns``; -1 where rows were not timed. The record has these under the same
    names and in the same order: they are the last columns of ``StepRow``.
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
    """Where a result lies: the pickled skeleton inside the slot, the slot's bytes in use, or an object on the heap.

    ``nbytes`` is an estimate for objects on the heap. ``shared_bytes`` is where all rows end in the slot that the parts of a split
    ticket share; it is the same for all parts that put their rows there.
    """

    root_offset: int = 0
    root_bytes: int = 0
    nbytes: int = 0
    flags: int = 0
    heap: object | None = None
    shared_bytes: int = 0
