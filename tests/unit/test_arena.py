"""Slots: writing, growing, trimming, both backings, and that nothing accumulates."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.scheduler.types import SlotRef
from stoker._runtime.transport import shared_pages
from stoker._runtime.transport.arena import Arena
from stoker._runtime.transport.writer import ArenaWriter, SlotWriter


class Wire:
    """Both sides of an arena in one process."""

    def __init__(self, backing: shared_pages.Backing | None = None) -> None:
        self.arena = Arena(backing=backing)
        self.fd = os.dup(self.arena.fd)
        self.writer = ArenaWriter(self.fd, self.arena.stride, reserve=self.arena.reserve)

    def send(self, obj: Any, index: int = 0, *, copy: bool = False) -> Any:
        self.arena.prepare(index)
        return self.receive(self.writer.open(index), obj, index, copy=copy)

    def receive(self, slot: SlotWriter, obj: Any, index: int = 0, *, copy: bool = False) -> Any:
        receipt = slot.write(obj)
        take = self.arena.copy_out if copy else self.arena.lease
        return take(SlotRef(index, 0), receipt.nbytes).load(receipt.root_offset, receipt.root_bytes)

    def close(self) -> None:
        self.writer.close()
        os.close(self.fd)
        self.arena.close()


@pytest.fixture(params=["memfd", "file"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    wire = Wire(request.param)
    yield wire
    wire.close()


def mappings() -> int:
    return sum("stoker-arena" in line for line in Path("/proc/self/maps").read_text().splitlines())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_task_payload(wire: Wire) -> None:
    for payload in (b"", b"x", bytes(range(256)) * 1000):
        wire.arena.put(3, payload)
        assert wire.writer.open(3).peek(len(payload)) == payload
    wire.arena.put(3, memoryview(b"view"))
    assert wire.writer.open(3).peek(4) == b"view"


def test_slot_memory_is_aligned_and_apart(wire: Wire) -> None:
    slot = wire.writer.open(0)
    tensors = [slot.tensor((size,), torch.float32).fill_(size) for size in (1, 3, 0, 100_000, 5)]
    for tensor, size in zip(tensors, (1, 3, 0, 100_000, 5), strict=True):
        assert tensor.shape == (size,)
        assert tensor.data_ptr() % 64 == 0
        assert torch.all(tensor == size)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex128, torch.uint16])
def test_slot_memory_of_any_dtype(wire: Wire, dtype: torch.dtype) -> None:
    slot = wire.writer.open(0)
    tensor = slot.tensor((2, 3), dtype)
    tensor.copy_(torch.ones(2, 3, dtype=dtype))
    assert torch.equal(wire.receive(slot, [tensor])[0], torch.ones(2, 3, dtype=dtype))


def test_what_lies_in_the_slot_is_not_copied(wire: Wire) -> None:
    slot = wire.writer.open(0)
    mine = slot.tensor((4,), torch.int64).copy_(torch.arange(4))
    batch = wire.receive(slot, {"x": mine, "view": mine[1:], "array": mine.numpy(), "other": torch.ones(2)})
    mine[2] = 77
    assert batch["x"].tolist() == [0, 1, 77, 3]
    assert batch["view"].tolist() == [1, 77, 3]
    assert batch["array"].tolist() == [0, 1, 77, 3]
    assert batch["other"].tolist() == [1, 1]


def test_slot_memory_survives_growth_of_its_mapping(wire: Wire) -> None:
    slot = wire.writer.open(0)
    early = slot.tensor((4,), torch.uint8).fill_(7)
    late = slot.tensor((1 << 20,), torch.uint8).fill_(9)
    got_early, got_late = wire.receive(slot, [early, late])
    early[0] = 1
    assert got_early.tolist() == [1, 7, 7, 7]
    assert torch.all(got_late == 9)


def test_rows_of_one_batch_by_two_workers(wire: Wire) -> None:
    other = ArenaWriter(wire.fd, wire.arena.stride, reserve=wire.arena.reserve)
    other.open(0).tensor_at(64 + 2 * 4, (2,), torch.float32).fill_(2)
    slot = wire.writer.open(0)
    slot.tensor_at(64, (2,), torch.float32).fill_(1)
    whole = slot.tensor_at(64, (4,), torch.float32)
    assert slot.tensor((1,), torch.uint8).data_ptr() > whole.data_ptr()
    assert wire.receive(slot, whole).tolist() == [1, 1, 2, 2]
    other.close()


def test_region_tensor(wire: Wire) -> None:
    slot = wire.writer.open(0)
    slot.tensor_at(128, (2, 2), torch.int16).copy_(torch.arange(4).view(2, 2))
    region = wire.arena.lease(SlotRef(0, 0), 256)
    assert region.tensor(128, (2, 2), torch.int16).tolist() == [[0, 1], [2, 3]]
    assert region.tensor(128, (0, 2), torch.int16).shape == (0, 2)
    assert region.tensor(128, (), torch.bfloat16).dim() == 0


@pytest.mark.parametrize("copy", [False, True])
def test_small_then_large_then_small(wire: Wire, copy: bool) -> None:
    for nbytes in (1 << 10, 64 << 20, 1 << 10):
        want = torch.arange(nbytes // 8)
        got = wire.send(want, copy=copy)
        assert torch.equal(got, want)
        del got


def test_copy_out_leaves_the_slot_free(wire: Wire) -> None:
    copied = wire.send([torch.arange(3), np.arange(3)], copy=True)
    wire.send([torch.ones(100)])
    assert copied[0].tolist() == [0, 1, 2]
    assert copied[1].tolist() == [0, 1, 2]
    del copied
    assert [ref.index for ref in wire.arena.released] == [0]


def test_many_slots_and_sparse_indices(wire: Wire) -> None:
    batches = [wire.send(torch.full((3,), index), index) for index in (0, 63, 64, 200)]
    assert [batch[0].item() for batch in batches] == [0, 63, 64, 200]


def test_writer_refuses_a_slot_that_was_never_prepared(wire: Wire) -> None:
    with pytest.raises(ValueError, match="not prepared"):
        wire.writer.open(10_000)


def test_trim_gives_pages_back(wire: Wire) -> None:
    wire.send(torch.ones(4 << 20, dtype=torch.uint8), 1)
    wire.send(torch.ones(1 << 20, dtype=torch.uint8), 2)
    before = wire.arena.resident_bytes()
    assert before >= 5 << 20
    wire.arena.trim(1)
    assert wire.arena.resident_bytes() <= before - (4 << 20)
    assert wire.arena.lease(SlotRef(1, 0), 64).tensor(0, (64,), torch.uint8).count_nonzero() == 0
    assert wire.send(torch.ones(4 << 20, dtype=torch.uint8), 1).sum() == 4 << 20
    wire.arena.trim(1)  # it was used since
    assert wire.arena.resident_bytes() <= before - (4 << 20)


def test_a_slot_that_has_no_pages_costs_nothing_to_trim(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    punched: list[int] = []
    monkeypatch.setattr(shared_pages, "punch", lambda fd, offset, nbytes: punched.append(offset // nbytes))
    wire.send(torch.ones(100), 1)
    for _ in range(3):
        wire.arena.trim(1)
    assert punched == [1]
    wire.send(torch.ones(100), 1)
    wire.arena.trim(1)
    assert punched == [1, 1]


def test_only_touched_pages_exist(wire: Wire) -> None:
    wire.send([torch.ones(10)], 50)
    assert wire.arena.resident_bytes() < 1 << 20


@pytest.mark.parametrize("kept", [0, 30])
def test_nothing_accumulates(wire: Wire, kept: int) -> None:
    keep = [wire.send([torch.ones(100), {"a": np.ones(3)}], 1 + number) for number in range(kept)]
    wire.send([torch.ones(10)])
    before = descriptors(), mappings()
    for number in range(500):
        wire.arena.put(0, b"task")
        wire.send([torch.full((10,), number), "text"], copy=number % 7 == 0)
    assert (descriptors(), mappings()) == before
    assert wire.writer.open(0).held() is False
    assert len(keep) == kept


def test_descriptors_do_not_grow_with_kept_batches(wire: Wire) -> None:
    before = descriptors()
    keep = [wire.send([torch.ones(100)], index) for index in range(60)]
    assert descriptors() == before
    assert len(keep) == 60


def test_close_is_idempotent_and_leases_outlive_it(wire: Wire) -> None:
    batch = wire.send(torch.arange(5))
    wire.arena.close()
    wire.arena.close()
    wire.writer.close()
    batch += 1
    assert batch.tolist() == [1, 2, 3, 4, 5]


def test_mappings_end_with_the_arena() -> None:
    before = mappings()
    wire = Wire()
    batch = wire.send([torch.ones(10)])
    wire.close()
    assert mappings() > before
    del batch
    assert mappings() == before


def test_files_have_no_name_and_no_other_reader() -> None:
    wire = Wire("file")
    assert os.fstat(wire.arena.fd).st_nlink == 0
    assert os.fstat(wire.arena.fd).st_mode & 0o077 == 0
    assert not os.get_inheritable(wire.arena.fd)
    wire.close()


def test_without_memfd_the_arena_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    wire = Wire()
    assert wire.arena.backing == "file"
    assert wire.send(torch.arange(3)).tolist() == [0, 1, 2]
    wire.close()
    with pytest.raises(OSError, match="memfd"):
        Arena(backing="memfd")


def test_a_full_disk_is_an_error_before_the_page_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire("file")

    def refuse(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space left"):
        wire.writer.open(0).write(torch.ones(10))
    with pytest.raises(OSError, match="No space left"):
        wire.writer.open(0).tensor((10,), torch.uint8)
    with pytest.raises(OSError, match="No space left"):
        wire.arena.put(0, b"task")
    wire.close()


def test_a_file_size_limit_makes_the_stride_smaller() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 34, hard))
    try:
        wire = Wire()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert wire.arena.stride == 1 << 28
    assert wire.send(torch.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(OSError, match="stride"):
        wire.writer.open(0).tensor((1 << 29,), torch.uint8)
    wire.close()


def test_stride_must_be_mappable() -> None:
    with pytest.raises(ValueError, match="multiple"):
        Arena(stride=1000)
