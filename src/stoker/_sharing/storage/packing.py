"""Packs a whole container, array or tensor into a segment. Runs in ``share``, on the caller's thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from stoker._pickling.segment import Segment, SegmentWriter
from stoker._pickling.tensors import plain_tensor, tensor_bytes
from stoker._sharing.containers import arrays, dicts, lists, sets
from stoker._sharing.storage.columns import column
from stoker._sharing.storage.index import Index, Unstable
from stoker._sharing.storage.pickled import NotPacked
from stoker.errors import CannotShare


@dataclass(frozen=True, slots=True)
class Packed:
    """Something that lies in a segment which is not sealed yet. ``layout`` is for reports."""

    layout: str
    nbytes: int
    _open: Callable[[Segment], Any]

    def open(self, segment: Segment) -> Any:
        """What takes the original's place."""
        return self._open(segment)


def pack(obj: Any, writer: SegmentWriter) -> Packed:
    """Write ``obj`` (of exactly one of the types below) to the segment. Does not change it.

    Raises CannotShare for an item that cannot be packed and NotPacked when the whole has to stay as it is.
    """
    kind = type(obj)
    before = writer.nbytes
    if kind in (list, tuple):
        shared = lists.SharedList if kind is list else lists.SharedTuple
        layout = column(obj, writer)
        name = layout.name
        opener: Callable[[Segment], Any] = partial(_sequence, shared, layout, range(len(obj)))
    elif kind in (dict, OrderedDict):
        name, opener = _dict(obj, writer)
    elif kind in (set, frozenset):
        items = list(obj)
        layout, index = column(items, writer), _index(items, writer)
        name = layout.name
        opener = partial(_set, layout, index, len(items), kind is frozenset)
    elif kind is np.ndarray:
        name, opener = _array(obj, writer)
    elif kind is torch.Tensor:
        name, opener = _tensor(obj, writer)
    else:
        raise NotPacked(f"a {kind.__name__} is not something that can be shared")
    return Packed(name, writer.nbytes - before, opener)


def _dict(obj: dict[Any, Any], writer: SegmentWriter) -> tuple[str, Callable[[Segment], Any]]:
    rows = list(obj)
    index = _index(rows, writer)
    keys = column(rows, writer)
    try:
        values = column(list(obj.values()), writer)
    except CannotShare as error:
        row = error.steps[0]
        assert isinstance(row, int)
        raise CannotShare(str(error), (rows[row], *error.steps[1:])) from error
    return f"{keys.name} to {values.name}", partial(_mapping, keys, values, index, len(rows))


def _index(keys: list[Any], writer: SegmentWriter) -> Index:
    try:
        return Index.write(keys, writer)
    except Unstable as error:
        raise NotPacked(f"keys of type {error} have no hash that is the same in every process") from error


def _array(obj: np.ndarray[Any, Any], writer: SegmentWriter) -> tuple[str, Callable[[Segment], Any]]:
    if obj.dtype.hasobject:
        raise NotPacked("an array of Python objects: share a list of them (array.tolist()) instead")
    order = "F" if obj.flags.f_contiguous and not obj.flags.c_contiguous else "C"
    place = writer.array(np.ascontiguousarray(obj.T if order == "F" else obj))
    return str(obj.dtype), partial(_opened_array, place, obj.dtype, obj.shape, order)


def _tensor(obj: torch.Tensor, writer: SegmentWriter) -> tuple[str, Callable[[Segment], Any]]:
    if not plain_tensor(obj):
        raise NotPacked("a tensor with a gradient, on a device, or not dense")
    dense = obj
    if not obj.is_contiguous() and obj.numel() == obj.untyped_storage().nbytes() // obj.element_size():
        # Its memory is dense in another order (channels last, transposed): keep the order.
        dense = obj.as_strided((obj.numel(),), (1,), 0)
        stride = obj.stride()
    else:
        stride = obj.contiguous().stride()
    place = writer.put((tensor_bytes(dense),))
    name = str(obj.dtype).removeprefix("torch.")
    return f"tensor of {name}", partial(_opened_tensor, place, obj.dtype, tuple(obj.shape), stride)


def _sequence(kind: Any, layout: Any, rows: range, segment: Segment) -> Any:
    return lists.opened(kind, segment, layout, rows)


def _mapping(keys: Any, values: Any, index: Index, rows: int, segment: Segment) -> Any:
    return dicts.opened_dict(segment, keys, values, index, rows)


def _set(keys: Any, index: Index, rows: int, frozen: bool, segment: Segment) -> Any:
    return sets.opened_set(segment, keys, index, rows, frozen)


def _opened_array(place: Any, dtype: Any, shape: Any, order: str, segment: Segment) -> Any:
    return arrays.opened_array(segment, place, dtype, shape, order)


def _opened_tensor(place: Any, dtype: Any, shape: Any, stride: Any, segment: Segment) -> Any:
    return arrays.opened_tensor(segment, place, dtype, shape, stride)
