"""Headers come out as they went in, fit their channels, and many of them can be read in one go."""

from __future__ import annotations

import select
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker._runtime.protocol import wire

U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))

tasks = st.builds(
    wire.TaskHeader,
    version=U8, kind=U8, flags=U16, epoch=U32, seq=U64, position=U64, attempt=U16, part=U16, parts=U16,
    start=U32, stop=U32, rows=U32, slot=U32, slot_generation=U32, scratch=U32, scratch_generation=U32,
    seed=U64, pipe_seed=U64, pull=U64, payload_bytes=U64, sent_ns=U64,
)  # fmt: skip
results = st.builds(
    wire.ResultHeader,
    version=U8, kind=U8, flags=U16, worker=U32, epoch=U32, seq=U64, attempt=U16, part=U16,
    slot=U32, slot_generation=U32, scratch=U32, scratch_generation=U32,
    root_offset=U64, root_bytes=U64, nbytes=U64, shared_bytes=U64,
    dispatched_ns=U64, received_ns=U64, fetched_ns=U64, collated_ns=U64, sent_ns=U64,
    cpu_ns=U64, runq_ns=U64, metered_ns=U64, slow_row=st.integers(-1, 1 << 62), slow_ns=U64,
)  # fmt: skip


@given(tasks, st.binary(max_size=wire.INLINE_BYTES))
def test_a_task_and_its_indices_come_out_as_they_went_in(task: wire.TaskHeader, indices: bytes) -> None:
    message = wire.pack_task(*task) + indices
    assert wire.TaskHeader._make(wire.unpack_task(message)) == task
    assert message[wire.TASK.size :] == indices


@given(st.lists(results, max_size=5))
def test_results_that_arrived_together_are_told_apart(sent: list[wire.ResultHeader]) -> None:
    arrived = b"".join(wire.pack_result(*result) for result in sent)
    assert [wire.ResultHeader._make(fields) for fields in wire.unpack_results(arrived)] == sent


def test_a_result_is_written_whole_or_not_at_all() -> None:
    assert wire.RESULT.size <= select.PIPE_BUF


def test_no_slot_is_the_largest_number_the_field_holds() -> None:
    fields = wire.TaskHeader(*([0] * len(wire.TaskHeader._fields)))._replace(scratch=wire.NO_SLOT)
    assert wire.TaskHeader._make(wire.unpack_task(wire.pack_task(*fields))).scratch == wire.NO_SLOT
    with pytest.raises(struct.error):
        wire.pack_task(*fields._replace(scratch=wire.NO_SLOT + 1))


def test_kinds_fit_their_byte_and_differ() -> None:
    for kinds in (wire.ResultKind, wire.TaskKind):
        assert all(0 < kind < 256 for kind in kinds)
        assert len({int(kind) for kind in kinds}) == len(kinds.__members__)
    assert wire.HELD_SLOT & wire.HELD_SCRATCH == 0


def test_the_version_is_the_first_byte_of_both() -> None:
    """A reader of another version must be able to tell before it reads anything else."""
    task = wire.pack_task(wire.VERSION, *([0] * (len(wire.TaskHeader._fields) - 1)))
    result = wire.pack_result(wire.VERSION, *([0] * (len(wire.ResultHeader._fields) - 1)))
    assert task[0] == result[0] == wire.VERSION


def test_the_bytes_on_the_wire_stay() -> None:
    """The formats come from the fields. A change of them needs a new VERSION."""
    assert wire.VERSION == 3
    assert wire.TASK.format == "<BBHIQQHHHxxIIIIIIIQQQQQ"
    assert wire.RESULT.format == "<BBHIIxxxxQHHxxxxIIIIQQQQQQQQQQQQqQ"
