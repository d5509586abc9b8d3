"""Defines the headers that parent and worker processes exchange: fixed size, versioned, little-endian.

Each field stands once, in its named tuple; the type of a field gives its size on the wire.

    task     parent → worker   header, then the pickled indices when they are short; long ones lie at the start of a slot
    result   worker → parent   header only (160 bytes, below PIPE_BUF: a write is whole or not at all, whoever dies)

Every result carries its spans since the first version, so measuring more changes no format.
"""

from __future__ import annotations

import enum
import struct
from typing import Annotated, NamedTuple

U8 = Annotated[int, "B"]
U16 = Annotated[int, "H"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]
I64 = Annotated[int, "q"]
U16_PAD2 = Annotated[int, "Hxx"]
U16_PAD4 = Annotated[int, "Hxxxx"]
U32_PAD4 = Annotated[int, "Ixxxx"]
"""Types of header fields: a number and its ``struct`` code, with the bytes of padding that follow it."""

VERSION = 3
NO_SLOT = 0xFFFFFFFF
INLINE_BYTES = 1024
"""Pickled indices up to this size travel inside the message. Larger ones would make the channel shallow."""


FDS_PER_MESSAGE = 200
"""How many descriptors travel in one message; the kernel takes 253 at most."""


class ResultKind(enum.IntEnum):
    """What a result header reports."""

    READY = 1
    FAILED = 2
    ENDED = 3
    SKIPPED = 4
    UP = 5
    UNHELD = 6
    LEAVING = 7
    WAKE = 8
    """Of the parent itself: whoever waits for results stops waiting."""


class TaskKind(enum.IntEnum):
    """What a task message asks for."""

    MAKE = 1
    LEAVE = 2
    LOOK = 3
    """Look at the status page: the parent wrote a request there."""


class TaskHeader(NamedTuple):
    """A task on the wire. ``payload_bytes`` counts the pickled indices. ``flags`` are INLINE and WITH_EXCLUDED below."""

    version: U8
    kind: U8
    flags: U16
    epoch: U32
    seq: U64
    position: U64
    attempt: U16
    part: U16
    parts: U16_PAD2
    start: U32
    stop: U32
    rows: U32
    slot: U32
    slot_generation: U32
    scratch: U32
    scratch_generation: U32
    seed: U64
    pipe_seed: U64
    pull: U64
    payload_bytes: U64
    sent_ns: U64


INLINE = 1
"""Task flag: the payload follows the header in the message; otherwise it lies at the start of a slot."""

WITH_EXCLUDED = 2
"""Task flag: the payload is (indices, excluded rows, spare indices)."""


class ResultHeader(NamedTuple):
    """A result on the wire. ``flags`` are the HELD_* bits below."""

    version: U8
    kind: U8
    flags: U16
    worker: U32
    epoch: U32_PAD4
    seq: U64
    attempt: U16
    part: U16_PAD4
    slot: U32
    slot_generation: U32
    scratch: U32
    scratch_generation: U32
    root_offset: U64
    root_bytes: U64
    nbytes: U64
    shared_bytes: U64
    dispatched_ns: U64
    received_ns: U64
    fetched_ns: U64
    collated_ns: U64
    sent_ns: U64
    cpu_ns: U64
    runq_ns: U64
    metered_ns: U64
    slow_row: I64
    slow_ns: U64


HELD_SLOT = 1
HELD_SCRATCH = 2


def _struct(header: type[NamedTuple]) -> struct.Struct:
    """Build the format of a header from the types of its fields, which are names of this module."""
    names = (str(getattr(name, "__forward_arg__", name)) for name in header.__annotations__.values())
    # typing.get_type_hints gives the same and takes ten times as long.
    types = (globals()[name] for name in names)
    return struct.Struct("<" + "".join(each.__metadata__[0] for each in types))


COUNT = struct.Struct("<Q")
REGION = struct.Struct("<QQ")
"""Where a part's rows lie in the slot, as a count and (offset, bytes) each. Written behind the part, for a worker on another host.
"""

TASK = _struct(TaskHeader)
RESULT = _struct(ResultHeader)
MAX_TASK_BYTES = TASK.size + INLINE_BYTES
pack_task = TASK.pack
unpack_task = TASK.unpack_from
pack_result = RESULT.pack
unpack_results = RESULT.iter_unpack
