"""A lease ends once, with the last tensor, view or numpy alias built from it, on whatever thread."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.scheduler.types import SlotRef
from stoker._runtime.transport.arena import Arena, Region
from stoker._runtime.transport.writer import ArenaWriter

REF = SlotRef(0, 7)


class Wire:
    def __init__(self) -> None:
        self.arena = Arena()
        self.fd = os.dup(self.arena.fd)
        self.writer = ArenaWriter(self.fd, self.arena.stride)

    def send(self, obj: Any, ref: SlotRef = REF) -> Any:
        receipt = self.writer.open(ref.index).write(obj)
        return self.arena.lease(ref, receipt.nbytes).load(receipt.root_offset, receipt.root_bytes)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.writer.close()
    os.close(wire.fd)
    wire.arena.close()


@pytest.mark.parametrize(
    "derive",
    [
        lambda batch: batch["x"],
        lambda batch: batch["x"][1:],
        lambda batch: batch["x"].view(2, 2).t(),
        lambda batch: batch["x"].numpy(),
        lambda batch: batch["x"][1:].numpy()[1:],
        lambda batch: batch["x"].detach(),
        lambda batch: batch["x"].untyped_storage(),
        lambda batch: memoryview(batch["x"].numpy()),
        lambda batch: batch["half"],
        lambda batch: batch["half"][1:],
        lambda batch: batch["alias"],
        lambda batch: batch["array"],
        lambda batch: batch["array"][1:],
        lambda batch: torch.from_numpy(batch["array"]),
        lambda batch: batch["strided"],
        lambda batch: batch["nested"],
        lambda batch: batch["sparse"],
        lambda batch: torch.utils.dlpack.from_dlpack(batch["x"]),
    ],
)
def test_every_alias_keeps_the_lease(wire: Wire, derive: Callable[[Any], Any]) -> None:
    base = torch.arange(4.0)
    batch = wire.send(
        {
            "x": torch.arange(4.0),
            "half": torch.ones(3).bfloat16(),
            "alias": base[1:],
            "aliased": base,
            "array": np.arange(3),
            "strided": torch.arange(6).view(2, 3).t(),
            "nested": [({"deep": torch.ones(1)},)],
            "sparse": torch.eye(2).to_sparse(),
        }
    )
    assert not wire.arena.released
    kept = derive(batch)
    del batch
    assert not wire.arena.released
    del kept
    assert list(wire.arena.released) == [REF]


def test_values_that_are_not_in_the_slot_do_not_keep_it(wire: Wire) -> None:
    batch = wire.send([torch.ones(2), torch.empty(0), "text", 5])
    rest = batch[1:]
    del batch
    assert list(wire.arena.released) == [REF]
    assert rest[1:] == ["text", 5]


def test_region_keeps_the_lease_and_ends_it_once(wire: Wire) -> None:
    region = wire.arena.lease(REF, 100)
    tensors = [region.tensor(0, (4,), torch.uint8) for _ in range(3)]
    del region
    assert not wire.arena.released
    tensors.clear()
    gc.collect()
    assert list(wire.arena.released) == [REF]


def test_two_leases_of_one_slot_end_apart(wire: Wire) -> None:
    one = wire.arena.lease(SlotRef(0, 1), 100)
    two = wire.arena.lease(SlotRef(0, 2), 100)
    del one
    assert list(wire.arena.released) == [SlotRef(0, 1)]
    del two
    assert list(wire.arena.released) == [SlotRef(0, 1), SlotRef(0, 2)]


def test_lease_survives_a_longer_mapping_of_its_slot(wire: Wire) -> None:
    first = wire.send(torch.full((10,), 3), SlotRef(0, 1))
    second = wire.arena.lease(SlotRef(0, 2), 1 << 20).tensor(0, (10,), torch.int64)
    assert torch.equal(first, second)
    del first
    assert list(wire.arena.released) == [SlotRef(0, 1)]


class Knot:
    """A reference cycle: only the garbage collector can free what it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.me = self


def test_lease_ends_inside_gc_on_another_thread(wire: Wire) -> None:
    gc.disable()
    try:
        Knot(wire.send([torch.ones(4), {"a": np.ones(2)}]))
        assert not wire.arena.released
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    finally:
        gc.enable()
    assert list(wire.arena.released) == [REF]


def test_leases_ended_by_many_threads(wire: Wire) -> None:
    refs = [SlotRef(index, 0) for index in range(40)]
    batches = [[wire.send([torch.ones(4)], ref)] for ref in refs]
    start = threading.Barrier(4)

    def drop(part: list[list[Any]]) -> None:
        start.wait()
        for batch in part:
            batch.clear()

    threads = [threading.Thread(target=drop, args=(batches[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ref.index for ref in wire.arena.released) == list(range(40))


def test_forked_child_releases_nothing(wire: Wire) -> None:
    batch = wire.send([torch.ones(4)])
    child = os.fork()
    if child == 0:
        batch.clear()
        os._exit(len(wire.arena.released))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not wire.arena.released
    batch.clear()
    assert list(wire.arena.released) == [REF]


def test_an_arena_dropped_with_live_leases_is_freed() -> None:
    arena = Arena()
    gone = weakref.ref(arena)
    region: Region | None = arena.lease(REF, 10)
    arena.close()
    del arena
    gc.collect()
    assert gone() is None
    assert region is not None
    assert region.tensor(0, (4,), torch.uint8).tolist() == [0, 0, 0, 0]


def test_held_tells_whether_the_worker_kept_memory(wire: Wire) -> None:
    slot = wire.writer.open(0)
    tensor = slot.tensor((4,), torch.float32)
    slot.write([tensor])
    view = tensor[1:].numpy()
    del tensor
    assert slot.held()
    del view
    assert not slot.held()


def test_held_sees_earlier_batches_and_other_mappings(wire: Wire) -> None:
    slot = wire.writer.open(0)
    kept = slot.tensor((4,), torch.float32)
    slot.tensor((1 << 20,), torch.uint8)
    slot.write([])
    slot = wire.writer.open(0)
    slot.write([torch.ones(3)])
    assert slot.held()
    del kept
    assert not slot.held()


def test_held_is_false_for_what_was_copied_into_the_slot(wire: Wire) -> None:
    slot = wire.writer.open(0)
    batch = [torch.ones(3), np.ones(3)]
    slot.write(batch)
    assert not slot.held()


def test_held_stays_exact_over_many_batches(wire: Wire) -> None:
    kept = [wire.writer.open(0).tensor((1,), torch.uint8) for _ in range(30)]
    slot = wire.writer.open(0)
    assert slot.held()
    kept.clear()
    assert not slot.held()
