"""Threads and a ``collate_fn`` that fills one buffer again and again: batches are those of a loader without workers."""

from __future__ import annotations

import gc
import importlib.util
import sys
import warnings
from array import array
from collections import deque, namedtuple
from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate

import stoker
from stoker._runtime.executors import kept_memory as its_module
from stoker._runtime.executors.kept_memory import KeptMemory

ROWS, SIZE = 96, 4
Pair = namedtuple("Pair", "rows labels")  # as in user code


class Marked(torch.Tensor):
    """Like the images and boxes of torchvision."""

    label: str


class Matrix(np.ndarray):
    """Like np.memmap."""


class Slotted:
    __slots__ = ("__x", "y")

    def __init__(self, x: torch.Tensor) -> None:
        self.__x = x

    @property
    def x(self) -> torch.Tensor:
        return self.__x


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), index)


class Buffers:
    """Ways to give out memory that one keeps. ``rows`` reads a batch back."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(SIZE, 3, dtype=torch.int64)
        self.wide = torch.zeros(2 * SIZE, 3, dtype=torch.int64)
        self.array = np.zeros((SIZE, 3), np.int64)
        self.ring = [torch.zeros(SIZE, 3, dtype=torch.int64) for _ in range(3)]
        self.complex = torch.zeros(SIZE, 3, dtype=torch.complex64)
        self.dict: dict[str, Any] = {}
        self.marked = self.wide[:SIZE].clone().as_subclass(Marked)
        self.marked.label = "kept"
        self.weights = torch.nn.Parameter(torch.zeros(SIZE, 3), requires_grad=False)
        self.matrix = np.zeros((SIZE, 3), np.int64).view(Matrix)
        self.bytes = bytearray(3 * SIZE)
        self.numbers = array("q", [0] * 3 * SIZE)
        self.deque: deque[torch.Tensor] = deque(maxlen=1)
        self.set: set[int] = set()
        self.io = BytesIO()
        self.calls = 0

    def whole(self, samples: list[torch.Tensor]) -> Any:
        return torch.stack(samples, out=self.tensor)

    def view(self, samples: list[torch.Tensor]) -> Any:
        self.wide[: len(samples)] = torch.stack(samples)
        return {"x": [self.wide[: len(samples)]]}

    def conjugate(self, samples: list[torch.Tensor]) -> Any:
        self.complex.copy_(torch.stack(samples))
        return self.complex.conj()

    def negative(self, samples: list[torch.Tensor]) -> Any:
        self.tensor.copy_(-torch.stack(samples))
        return torch._neg_view(self.tensor)  # what .conj().imag is

    def from_numpy(self, samples: list[torch.Tensor]) -> Any:
        self.array[:] = torch.stack(samples).numpy()
        return Pair(torch.from_numpy(self.array), torch.zeros(2))

    def numpy(self, samples: list[torch.Tensor]) -> Any:
        self.array[:] = torch.stack(samples).numpy()
        return (self.array, "text")

    def numpy_view(self, samples: list[torch.Tensor]) -> Any:
        self.array[:] = torch.stack(samples).numpy()
        return [self.array[:SIZE]]

    def subclass(self, samples: list[torch.Tensor]) -> Any:
        return self.marked.copy_(torch.stack(samples).as_subclass(Marked))

    def parameter(self, samples: list[torch.Tensor]) -> Any:
        self.weights.copy_(torch.stack(samples))
        return [self.weights]

    def sparse(self, samples: list[torch.Tensor]) -> Any:
        torch.stack(samples, out=self.tensor)
        return torch.sparse_coo_tensor(torch.arange(len(samples))[None], self.tensor[: len(samples)])

    def array_subclass(self, samples: list[torch.Tensor]) -> Any:
        self.matrix[:] = torch.stack(samples).numpy()
        return self.matrix

    def byte_array(self, samples: list[torch.Tensor]) -> Any:
        self.bytes[:] = bytes(int(each) for sample in samples for each in sample)
        return {"bytes": self.bytes}

    def array_of_numbers(self, samples: list[torch.Tensor]) -> Any:
        self.numbers[:] = array("q", torch.stack(samples).flatten().tolist())
        return self.numbers

    def one_deque(self, samples: list[torch.Tensor]) -> Any:
        self.deque.append(torch.stack(samples, out=self.tensor))
        return self.deque

    def one_set(self, samples: list[torch.Tensor]) -> Any:
        self.set.clear()
        self.set.update(int(each[0]) for each in samples)
        return self.set

    def stream(self, samples: list[torch.Tensor]) -> Any:
        self.io.seek(0)
        self.io.write(bytes(int(each[0]) for each in samples))
        return self.io

    def slots(self, samples: list[torch.Tensor]) -> Any:
        return Slotted(torch.stack(samples, out=self.tensor))

    def in_turn(self, samples: list[torch.Tensor]) -> Any:
        self.calls += 1
        return torch.stack(samples, out=self.ring[self.calls % 3])

    def one_dict(self, samples: list[torch.Tensor]) -> Any:
        self.dict["x"] = torch.stack(samples)
        return self.dict

    def attributes(self, samples: list[torch.Tensor]) -> Any:
        return SimpleNamespace(x=torch.stack(samples, out=self.tensor), y=1)


def rows(batch: Any) -> list[int]:
    if isinstance(batch, Pair):
        batch = batch.rows
    elif isinstance(batch, tuple | list | deque):
        batch = batch[0]
    elif isinstance(batch, dict):
        return rows(batch["x"] if "x" in batch else batch["bytes"])
    elif isinstance(batch, SimpleNamespace | Slotted):
        batch = batch.x
    elif isinstance(batch, set):
        return sorted(batch)
    elif isinstance(batch, BytesIO):
        return list(batch.getvalue())
    elif isinstance(batch, bytearray | array):
        return list(batch[::3])
    if isinstance(batch, torch.Tensor) and batch.is_sparse:
        batch = batch.to_dense()
    return [int(row[0].real) for row in batch]


SILENT = {"one_dict", "sparse", "byte_array", "array_of_numbers", "one_set", "stream"}
"""Copied every time, without a look at what was there before."""
WAYS = [name for name in vars(Buffers) if not name.startswith("_")]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_batches_stay_as_they_were_made(way: str, workers: int) -> None:
    """They once held the samples of later batches, and nobody said so."""
    collate = getattr(Buffers(), way)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with stoker.DataLoader(
            Numbers(),
            SIZE,
            num_workers=workers,
            executor="thread",
            collate_fn=collate,
        ) as loader:
            batches = list(loader)
    expected = [list(range(first, first + SIZE)) for first in range(0, ROWS, SIZE)]
    assert [rows(batch) for batch in batches] == expected
    said = [str(each.message) for each in told if "fills again" in str(each.message)]
    assert len(said) == (way not in SILENT)


def fresh(samples: list[torch.Tensor]) -> Any:
    wide = torch.stack([*samples, *samples])
    array = np.stack([each.numpy() for each in samples])
    shared = torch.from_numpy(array)
    return {"x": wide[: len(samples)], "y": list(wide.unbind()), "z": shared, "a": (np.ones(3), array.copy())}


@pytest.mark.parametrize("collate", [default_collate, list, fresh, lambda samples: samples[0]])
def test_what_nobody_else_holds_is_not_copied(collate: Callable[[Any], Any]) -> None:
    kept_memory = KeptMemory(collate)
    for number in range(20):
        box = [kept_memory([torch.full((3,), number) for _ in range(SIZE)])]
        made = id(box[0])
        kept_memory.settle(box)
        kept_memory.release()
        if number >= 16 or collate is not fresh:  # the first arrays are kept, to see whether they come back
            assert id(box[0]) == made
        del box
    assert not kept_memory._takes_turns
    gc.collect()


@pytest.mark.parametrize("fewer", [0, 1, 2])
def test_pythons_differ_in_what_a_call_adds_to_a_count(fewer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 3.13 the argument of ``sys.getrefcount`` is counted; from 3.14 on it is borrowed from the local name."""
    count = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda each: count(each) - fewer)
    spec = importlib.util.find_spec(its_module.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    whole, array, owner = torch.zeros(8), np.zeros(4), np.zeros(8)
    batch = [torch.zeros(3), whole[:4], array, owner[:4], np.zeros(8)[:4], {"x": bytearray(3)}]
    held = module.HeldMemory()
    held.search(batch, 6)
    found = [held.tensors.get(key, held.arrays.get(key)) for key in held.held()]
    assert {id(each) for each in found} == {id(batch[1]), id(array), id(batch[3])}


def test_a_copy_of_a_subclass_keeps_type_and_attributes() -> None:
    buffers = Buffers()
    for way, kind in (("subclass", Marked), ("parameter", torch.nn.Parameter), ("array_subclass", Matrix)):
        kept_memory = KeptMemory(getattr(buffers, way))
        box = [kept_memory([torch.full((3,), 7) for _ in range(SIZE)])]
        original = id(box[0])
        kept_memory.settle(box)
        kept_memory.release()
        copied = box[0][0] if isinstance(box[0], list) else box[0]
        assert id(box[0]) != original
        assert type(copied) is kind
        assert getattr(copied, "label", None) == ("kept" if kind is Marked else None)


def test_a_collate_fn_that_raises_holds_up_nobody() -> None:
    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        if int(samples[0][0]) == SIZE:
            raise ValueError("bad")
        return torch.stack(samples)

    options: dict[str, Any] = {"num_workers": 2, "executor": "thread", "collate_fn": collate}
    with stoker.DataLoader(Numbers(), SIZE, **options) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ValueError, match="bad"):
            next(iterator)
        assert len(list(iterator)) == ROWS // SIZE - 2
