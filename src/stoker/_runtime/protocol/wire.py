"""The headers that cross between parent and worker processes. Fixed size, versioned, little-endian.

    task     parent → worker   header, then the pickled indices when they are short; long ones lie at the start of a slot
    result   worker → parent   header only (160 bytes, below PIPE_BUF: a write is whole or not at all, whoever dies)

Spans travel in every result from the first version on, so that measuring later changes no format.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

VERSION = 3
NO_SLOT = 0xFFFFFFFF
INLINE_BYTES = 1024
"""Indices up to this many pickled bytes travel inside the message. Larger ones would shrink the channel's depth."""


PARCEL_FDS = 200
"""Descriptors per message, where many have to reach a worker; the kernel takes 253 at most."""


class ResultKind(enum.IntEnum):
    """What a result header speaks of."""

    READY = 1
    FAILED = 2
    ENDED = 3
    SKIPPED = 4
    UP = 5
    UNHELD = 6
    LEAVING = 7


class TaskKind(enum.IntEnum):
    """What a task message asks for."""

    MAKE = 1
    LEAVE = 2
    LOOK = 3
    """At the status page: the parent has written an order there."""


class TaskHeader(NamedTuple):
    """A task on the wire. ``payload_bytes`` counts the pickled indices. ``flags`` are INLINE and SIFTED below."""

    version: int
    kind: int
    flags: int
    epoch: int
    seq: int
    position: int
    attempt: int
    part: int
    parts: int
    start: int
    stop: int
    rows: int
    slot: int
    slot_generation: int
    scratch: int
    scratch_generation: int
    seed: int
    pipe_seed: int
    pull: int
    payload_bytes: int
    sent_ns: int


INLINE = 1
"""Task flag: the payload follows the header in the message; otherwise it lies at the start of a slot."""

SIFTED = 2
"""Task flag: the payload is (indices, excluded rows, spare indices)."""


class ResultHeader(NamedTuple):
    """A result on the wire. ``flags`` are the HELD_* bits below."""

    version: int
    kind: int
    flags: int
    worker: int
    epoch: int
    seq: int
    attempt: int
    part: int
    slot: int
    slot_generation: int
    scratch: int
    scratch_generation: int
    root_offset: int
    root_bytes: int
    nbytes: int
    shared_bytes: int
    dispatched_ns: int
    received_ns: int
    fetched_ns: int
    collated_ns: int
    sent_ns: int
    cpu_ns: int
    runq_ns: int
    metered_ns: int
    slow_row: int
    slow_ns: int


SPANS = slice(ResultHeader._fields.index("dispatched_ns"), None)
"""Where a result's ``Spans`` lie among its fields, in their order."""

HELD_SLOT = 1
HELD_SCRATCH = 2

TASK = struct.Struct("<BBHIQQHHHxxIIIIIIIQQQQQ")
RESULT = struct.Struct("<BBHIIxxxxQHHxxxxIIIIQQQQQQQQQQQQqQ")
MAX_TASK_BYTES = TASK.size + INLINE_BYTES
pack_task = TASK.pack
unpack_task = TASK.unpack_from
pack_result = RESULT.pack
unpack_results = RESULT.iter_unpack
RESULT_BYTES = RESULT.size
