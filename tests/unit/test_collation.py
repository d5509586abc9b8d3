"""Collation in a worker: torch's own map, with large tensors built straight in the slot and everything else as without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from stoker._runtime.protocol.worker_spec import BatchOrder, WorkerSpec
from stoker._runtime.transport.arena import Arena
from stoker._runtime.transport.writer import ArenaWriter
from stoker._runtime.worker import collation
from stoker._runtime.worker.batch_maker import BatchMaker


def make(rows: list[Any], slot: Any, collate_fn: Callable[[Any], Any] = default_collate) -> Any:
    """The batch of all these rows, by a maker as workers have it."""
    spec = WorkerSpec(
        rows, False, True, collate_fn, False, None, 1, "torch", 0, collate_fn is default_collate
    )
    count = len(rows)
    return BatchMaker(spec, 0).make(
        BatchOrder(1, 0, 0, 0, 0, 1, 0, count, count, 7, 7, 0, list(range(count))), slot
    )


class Slot:
    """A real slot; ``holds`` tells whether a tensor lies in it."""

    def __init__(self) -> None:
        self._arena = Arena()
        self._arena.prepare(0)
        self._fd = os.dup(self._arena.fd)
        self._writer = ArenaWriter(self._fd, self._arena.stride)
        self.memory = self._writer.open(0)

    def holds(self, tensor: torch.Tensor) -> bool:
        return any(start <= tensor.data_ptr() < limit for start, limit in self.memory._windows)

    def close(self) -> None:
        del self.memory
        self._writer.close()
        os.close(self._fd)
        self._arena.close()


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slot]:
    monkeypatch.setitem(torch_collate.default_collate_fn_map, torch.Tensor, torch_collate.collate_tensor_fn)
    collation.install()
    slot = Slot()
    yield slot
    slot.close()


def test_large_batches_are_stacked_in_the_slot(slot: Slot) -> None:
    rows = [torch.arange(10_000), torch.arange(10_000) + 1]
    got = make(rows, slot.memory)
    assert slot.holds(got)
    assert torch.equal(got, torch.stack(rows))
    del got


def test_default_collation_inside_a_users_function_lands_in_the_slot_too(slot: Slot) -> None:
    rows = [torch.zeros(10_000)]
    got = make(rows, slot.memory, lambda batch: {"x": default_collate(batch)})
    assert slot.holds(got["x"])
    del got


@pytest.mark.parametrize(
    "rows",
    [
        [torch.zeros(2), torch.ones(2)],
        [torch.zeros(10_000), torch.ones(10_000, dtype=torch.float64)],
        [torch.zeros(10_000), torch.ones(10_000, requires_grad=True)],
        [torch.nn.Parameter(torch.zeros(10_000)), torch.ones(10_000)],
    ],
    ids=["small", "mixed dtypes", "grad", "subclass"],
)
def test_what_does_not_fit_the_direct_way_is_stacked_as_without_workers(
    slot: Slot, rows: list[torch.Tensor]
) -> None:
    got = make(rows, slot.memory)
    expected = torch.stack(rows)
    assert not slot.holds(got)
    assert (got.dtype, got.requires_grad) == (expected.dtype, expected.requires_grad)
    assert torch.equal(got, expected)


def test_ragged_rows_are_torchs_own_error(slot: Slot) -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        make([torch.zeros(9000), torch.zeros(9001)], slot.memory)


def test_the_slot_is_forgotten_after_the_batch(slot: Slot) -> None:
    make([torch.zeros(10_000)], slot.memory)
    assert not slot.holds(default_collate([torch.zeros(10_000)]))
    with pytest.raises(TypeError):
        make([None], slot.memory)
    assert not slot.holds(default_collate([torch.zeros(10_000)]))


def test_a_loader_inside_a_collate_fn_does_not_take_the_slot_away(slot: Slot) -> None:
    def collate_fn(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return make(rows, None), default_collate(rows)

    inner, outer = make([torch.zeros(10_000)], slot.memory, collate_fn)
    assert not slot.holds(inner)
    assert slot.holds(outer)
    del inner, outer


def test_what_the_user_put_into_the_collate_map_stays_and_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(batch: Any, *, collate_fn_map: Any = None) -> str:
        return "mine"

    table = torch_collate.default_collate_fn_map
    monkeypatch.setitem(table, torch.Tensor, own)
    collation.install()
    assert table[torch.Tensor] is own
    assert collation.additions() == {torch.Tensor: own}
    monkeypatch.setitem(table, torch.Tensor, torch_collate.collate_tensor_fn)
    assert collation.additions() is None
    collation.merge({torch.Tensor: own})
    assert default_collate([torch.zeros(1)]) == "mine"


def test_only_torchs_own_collation_is_default() -> None:
    assert collation.is_default(default_collate)
    assert not collation.is_default(lambda rows: default_collate(rows))
