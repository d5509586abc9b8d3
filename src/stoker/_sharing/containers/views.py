"""Arrays and tensors over one buffer: packed as one region when that is smaller than packing each by itself."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from stoker._pickling.segment import Place, Segment, SegmentWriter
from stoker._sharing.containers.arrays import SharedArray, quiet_torch
from stoker._sharing.storage.packing import Packed


class ArrayHolder(Protocol):
    """Whatever holds an array or tensor."""

    @property
    def obj(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class MemorySpan:
    """The memory that an array or tensor reaches, from its lowest byte to behind its highest."""

    low: int
    high: int
    nbytes: int


def span(obj: Any) -> MemorySpan:
    """Where an array or CPU tensor lies in this process."""
    if isinstance(obj, np.ndarray):
        low, size, strides = obj.__array_interface__["data"][0], obj.itemsize, obj.strides
    else:
        size = obj.element_size()
        low, strides = obj.data_ptr(), tuple(step * size for step in obj.stride())
    steps = [(length - 1) * stride for length, stride in zip(obj.shape, strides, strict=True)]
    reach = sum(step for step in steps if step > 0) + size
    return MemorySpan(low + sum(step for step in steps if step < 0), low + reach, math.prod(obj.shape) * size)


def overlapping(holders: Sequence[ArrayHolder]) -> list[list[ArrayHolder]]:
    """Groups whose memory overlaps and whose common region is no larger than all of them apart.

    One that repeats its memory (expanded, broadcast) is a group by itself.
    """
    spans = sorted(((span(holder.obj), holder) for holder in holders), key=lambda each: each[0].low)
    groups: list[list[tuple[MemorySpan, ArrayHolder]]] = []
    high = 0
    for reach, holder in spans:
        if groups and reach.low < high:
            groups[-1].append((reach, holder))
        else:
            groups.append([(reach, holder)])
            high = 0
        high = max(high, reach.high)
    return [[holder for _, holder in group] for group in groups if _saves(group)]


def _saves(group: list[tuple[MemorySpan, ArrayHolder]]) -> bool:
    low, high = _region(reach for reach, _ in group)
    aligned = all((reach.low - low) % _itemsize(holder.obj) == 0 for reach, holder in group)
    apart = sum(reach.nbytes for reach, _ in group)
    return aligned and (high - low <= apart if len(group) > 1 else high - low < apart)


def _region(spans: Any) -> tuple[int, int]:
    every = list(spans)
    return min(each.low for each in every), max(each.high for each in every)


def _itemsize(obj: Any) -> int:
    return int(obj.element_size() if isinstance(obj, torch.Tensor) else 1)


def pack_together(group: Sequence[ArrayHolder], writer: SegmentWriter) -> list[Packed]:
    """Write the region once. The first of the group answers for all of its bytes."""
    low, high = _region(span(holder.obj) for holder in group)
    memory = memoryview((ctypes.c_ubyte * (high - low)).from_address(low)).cast("B")
    place = writer.put((memory,))
    storages: dict[int, torch.Tensor] = {}
    packed = []
    for number, holder in enumerate(group):
        view = _View(place, low, holder.obj, storages)
        kind = "tensor" if isinstance(holder.obj, torch.Tensor) else "array"
        dtype = str(holder.obj.dtype).removeprefix("torch.")
        name = f"{kind} of {dtype}, a view"
        packed.append(Packed(name, 0 if number else place.nbytes, view.open))
    return packed


class _View:
    """One member of a group, described without the memory it came from."""

    def __init__(self, place: Place, low: int, obj: Any, storages: dict[int, torch.Tensor]) -> None:
        self._place = place
        self._storages = storages
        self._dtype = obj.dtype
        self._shape = tuple(obj.shape)
        self._is_tensor = isinstance(obj, torch.Tensor)
        if self._is_tensor:
            self._at = obj.data_ptr() - low
            self._strides = obj.stride()
        else:
            self._at = obj.__array_interface__["data"][0] - low
            self._strides = obj.strides

    def open(self, segment: Segment) -> Any:
        if not self._is_tensor:
            quiet_torch()
            array: np.ndarray[Any, Any] = np.ndarray(
                self._shape, self._dtype, segment, self._place.at + self._at, self._strides
            )
            array.flags.writeable = False
            return array.view(SharedArray)
        whole = self._storages.get(id(segment))
        if whole is None:  # tensors over one storage stay tensors over one storage
            whole = torch.frombuffer(
                segment, dtype=torch.uint8, count=self._place.nbytes, offset=self._place.at
            )
            self._storages[id(segment)] = whole
        tensor = torch.empty(0, dtype=self._dtype)
        return tensor.set_(
            whole.untyped_storage(), self._at // self._dtype.itemsize, self._shape, self._strides
        )
