"""Writes the items of a container as a column: the most compact layout that gives every item back exactly."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from types import NoneType
from typing import Any

import numpy as np
import torch

from stoker._pickling.segment import Place, SegmentWriter
from stoker._pickling.tensors import plain_tensor, tensor_bytes
from stoker._sharing.storage import layouts
from stoker._sharing.storage.layouts import ColumnLayout
from stoker._sharing.storage.pickled import bytes_column, offsets, pickled_column, refuse_shared
from stoker.errors import CannotShare

_DEPTH = 8
"""Containers within containers beyond this depth are pickled."""

_FIELDS = 16
"""Tuples, lists and dicts of up to this many fields become one column per field."""

_CHOICES = 4096
_ATOMS = {str, int, float, bool, bytes}
_INTEGERS = (("b", 8), ("B", 8), ("h", 16), ("H", 16), ("i", 32), ("I", 32))


def column(items: Sequence[Any], writer: SegmentWriter, depth: int = 0) -> ColumnLayout:
    """Write these items and say how they lie. Raises CannotShare with the steps to the item that cannot be packed."""
    kinds = set(map(type, items))
    if kinds <= {NoneType}:
        return layouts.Constants(None)
    if NoneType in kinds:
        return _optionals(items, writer, depth)
    if not kinds <= _ATOMS and (repeated := _repeated(items, writer, depth)) is not None:
        return repeated
    if len(kinds) > 1 or depth > _DEPTH:
        return pickled_column(items, writer)
    layout = _of_kind(kinds.pop(), items, writer, depth)
    return layout if layout is not None else pickled_column(items, writer)


def _of_kind(kind: type, items: Sequence[Any], writer: SegmentWriter, depth: int) -> ColumnLayout | None:
    """The layout for items that all have exactly this type; None when they have to be pickled."""
    if kind is str:
        return _strings(items, writer)
    if kind is int:
        return _integers(items, writer)
    if kind is float:
        return layouts.Numbers(writer.array(np.array(items, np.float64)), "d")
    if kind is bool:
        return layouts.Numbers(writer.array(np.array(items, np.bool_)), "?")
    if kind is bytes:
        return bytes_column(iter(items), len(items), writer)
    if issubclass(kind, PurePath) and kind.__module__.partition(".")[0] == "pathlib":
        return layouts.Constructed(kind, _strings([str(item) for item in items], writer))
    if kind in (tuple, list, set, frozenset):
        return _sequences(kind, items, writer, depth)
    if issubclass(kind, tuple):
        return _named_tuples(kind, items, writer, depth)
    if kind is dict:
        return _dicts(items, writer, depth)
    if kind is np.ndarray:
        return _arrays(items, writer)
    if kind is torch.Tensor:
        return _tensors(items, writer)
    if issubclass(kind, np.number | np.bool_) and kind.__module__ == "numpy":
        return _scalars(items, writer)
    return None


def _scalars(items: Sequence[Any], writer: SegmentWriter) -> ColumnLayout | None:
    dtype = items[0].dtype
    if dtype.kind == "m" and any(item.dtype != dtype for item in items):
        return None  # times in different units
    return layouts.Scalars(writer.array(np.array(items, dtype)), dtype, len(items))


def _strings(items: Sequence[str], writer: SegmentWriter) -> ColumnLayout:
    rows = len(items)
    distinct: dict[str, int] = {}
    limit = min(_CHOICES, rows // 4)
    for item in items:
        if item not in distinct:
            if len(distinct) >= limit:
                break
            distinct[item] = len(distinct)
    else:
        codes = np.fromiter(map(distinct.__getitem__, items), np.int64, rows)
        return layouts.Choices(_text(list(distinct), writer), _codes(codes, writer))
    return _paths(items, writer) or _text(items, writer)


def _text(items: Sequence[str], writer: SegmentWriter) -> layouts.Strings:
    surrogates = False

    def encoded() -> Iterator[bytes]:
        nonlocal surrogates
        for item in items:
            try:
                yield item.encode()
            except UnicodeEncodeError:
                surrogates = True
                yield item.encode("utf-8", "surrogatepass")

    data = bytes_column(encoded(), len(items), writer)
    return layouts.Strings(data, surrogates)


def _paths(items: Sequence[str], writer: SegmentWriter) -> ColumnLayout | None:
    """Folders once, names by row, where that is clearly smaller."""
    rows = len(items)
    sample = items[:: max(1, rows // 256)]
    if sum(item.rfind("/") + 1 for item in sample) < 4 * len(sample):
        return None
    cuts = [item.rfind("/") + 1 for item in items]
    heads: dict[str, int] = {}
    codes = np.fromiter(
        (heads.setdefault(item[:cut], len(heads)) for item, cut in zip(items, cuts, strict=True)),
        np.int64,
        rows,
    )
    plain = sum(cuts)
    coded = sum(map(len, heads)) + 4 * len(heads) + rows * np.min_scalar_type(len(heads)).itemsize
    if coded > 0.8 * plain:
        return None
    try:
        tails = bytes_column(
            (item[cut:].encode() for item, cut in zip(items, cuts, strict=True)), rows, writer
        )
        heads_at = bytes_column((head.encode() for head in heads), len(heads), writer)
    except UnicodeEncodeError:
        return None
    return layouts.Paths(heads_at, _codes(codes, writer), tails)


def _integers(items: Sequence[int], writer: SegmentWriter) -> ColumnLayout | None:
    try:
        return _codes(np.array(items, np.int64), writer)
    except OverflowError:
        return None


def _codes(values: np.ndarray[Any, Any], writer: SegmentWriter) -> layouts.Numbers:
    """Whole numbers in as few bytes as they need."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind, bits in _INTEGERS:
        signed = kind.islower()
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if least <= low and high <= most:
            return layouts.Numbers(writer.array(values.astype(kind)), kind)
    return layouts.Numbers(writer.array(values.astype(np.int64)), "q")


def _optionals(items: Sequence[Any], writer: SegmentWriter, depth: int) -> ColumnLayout:
    there = np.fromiter((item is not None for item in items), np.bool_, len(items))
    where = np.where(there, np.cumsum(there) - 1, -1)
    try:
        others = column([item for item in items if item is not None], writer, depth)
    except CannotShare as error:
        raise _moved(error, int(np.flatnonzero(there)[_row(error)])) from error
    return layouts.Optionals(others, _codes(where, writer))


def _repeated(items: Sequence[Any], writer: SegmentWriter, depth: int) -> ColumnLayout | None:
    """Each object once, where few are met often: a list that all samples refer to must not be written for each of them."""
    numbers: dict[int, int] = {}
    limit = len(items) // 4
    for item in items:
        if id(item) not in numbers:
            if len(numbers) >= limit:
                return None
            numbers[id(item)] = len(numbers)
    codes = np.fromiter((numbers[id(item)] for item in items), np.int64, len(items))
    first = np.unique(codes, return_index=True)[1]
    try:
        once = column([items[row] for row in first], writer, depth)
    except CannotShare as error:
        raise _moved(error, int(first[_row(error)])) from error
    return layouts.Choices(once, _codes(codes, writer))


def _sequences(kind: type, items: Sequence[Any], writer: SegmentWriter, depth: int) -> ColumnLayout:
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    width = int(lengths[0])
    # Not for fewer rows than fields: a few objects that refer to each other many times over would become a field per way to them.
    if kind in (tuple, list) and 0 < width <= min(_FIELDS, len(items)) and bool((lengths == width).all()):
        return layouts.Records(kind, tuple(_field(items, place, writer, depth) for place in range(width)))
    ends = np.zeros(len(items) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    try:
        flat = column(list(itertools.chain.from_iterable(items)), writer, depth + 1)
    except CannotShare as error:
        row = bisect_right(ends.tolist(), _row(error)) - 1
        raise _moved(error, row, _row(error) - int(ends[row])) from error
    return layouts.Ragged(kind, flat, _codes(ends, writer))


def _named_tuples(kind: Any, items: Sequence[Any], writer: SegmentWriter, depth: int) -> ColumnLayout | None:
    """As tuples, where an instance is nothing but its fields; else None."""
    width = len(getattr(kind, "_fields", ()))
    if not 0 < width <= min(_FIELDS, len(items)) or any(len(item) != width for item in items):
        return None
    if kind.__dictoffset__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return None
    if kind.__reduce__ is not object.__reduce__ or kind.__getstate__ is not object.__getstate__:
        return None
    return layouts.Records(kind, tuple(_field(items, place, writer, depth) for place in range(width)))


def _dicts(items: Sequence[dict[Any, Any]], writer: SegmentWriter, depth: int) -> ColumnLayout | None:
    keys = tuple(items[0])
    if len(keys) > min(_FIELDS, len(items)):  # as with tuples
        return None
    if not set(map(type, itertools.chain.from_iterable(items))) <= {str}:
        return None
    if not all(map(keys.__eq__, map(tuple, items))):
        return None
    return layouts.Records(dict, tuple(_field(items, key, writer, depth) for key in keys), keys)


def _field(items: Sequence[Any], key: Any, writer: SegmentWriter, depth: int) -> ColumnLayout:
    try:
        return column([item[key] for item in items], writer, depth + 1)
    except CannotShare as error:
        raise _moved(error, _row(error), key) from error


def _arrays(items: Sequence[np.ndarray[Any, Any]], writer: SegmentWriter) -> ColumnLayout | None:
    dtype, ndim = items[0].dtype, items[0].ndim
    if dtype.hasobject or any(item.dtype != dtype or item.ndim != ndim for item in items):
        return None
    ends = np.zeros(len(items) + 1, np.uint64)
    np.cumsum(np.fromiter((item.nbytes for item in items), np.uint64, len(items)), out=ends[1:])
    place = writer.put(_raw(np.ascontiguousarray(item)) for item in items)
    shapes = _shapes([item.shape for item in items], writer)
    return layouts.Arrays(place, dtype, *offsets(ends, writer), shapes, ndim)


def _tensors(items: Sequence[torch.Tensor], writer: SegmentWriter) -> ColumnLayout | None:
    first = items[0]
    if not all(
        plain_tensor(item) and item.dtype is first.dtype and item.ndim == first.ndim for item in items
    ):
        return None
    for item in items:
        refuse_shared(item)
    ends = np.zeros(len(items) + 1, np.uint64)
    np.cumsum(np.fromiter((item.nbytes for item in items), np.uint64, len(items)), out=ends[1:])
    place = writer.put(tensor_bytes(item) for item in items)
    shapes = _shapes([tuple(item.shape) for item in items], writer)
    return layouts.Tensors(place, first.dtype, *offsets(ends, writer), shapes, first.ndim)


def _raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)


def _shapes(shapes: Sequence[tuple[int, ...]], writer: SegmentWriter) -> tuple[int, ...] | Place:
    if len(set(shapes)) == 1:
        return shapes[0]
    return writer.array(np.array(shapes, np.int64))


def _row(error: CannotShare) -> int:
    row = error.steps[0]
    assert isinstance(row, int)
    return row


def _moved(error: CannotShare, *steps: object) -> CannotShare:
    """The same complaint, seen from the column around it: its row there replaces the inner one."""
    return CannotShare(str(error), (*steps, *error.steps[1:]))
