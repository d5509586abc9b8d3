"""Lets several workers make rows of one batch: each writes its rows into the shared slot, and the parent joins them.

The place of a row follows from the layout (structure, types, shapes) and the number of rows, so no worker waits for another. Rows
of different layouts would overlap, and a worker does not know the layout of the others. So the first split batch travels as
samples. When all of its parts have one layout, the parent announces that layout, once and for good. From then on, parts of that
layout go to their places.

A part of any other layout is sent as samples. The parent then takes placed rows apart into samples again and collates all of them
as torch would. Nothing is fetched twice, the batch is the same, and the loader stops splitting.

Only plain dicts, lists, tuples and named tuples of tensors, arrays, numbers and strings have a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import torch

_ALIGN = 64


class PlacedMemory(Protocol):
    """Slot memory with fixed places; the transport's SlotWriter."""

    def tensor_at(self, offset: int, shape: Any, dtype: torch.dtype) -> torch.Tensor: ...


TensorAt = Callable[[int, Sequence[int], torch.dtype], torch.Tensor]
"""Builds a tensor over the shared slot: (offset, shape, dtype)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of the sample over all rows of a part: rows in the slot, or the strings themselves.

    ``kind`` is the Python type of the samples. ``values`` is a list or a tuple, as collation returns it.
    """

    kind: type
    offset: int = 0
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    values: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class PartRows:
    """What a worker reports about a part: the layout of its samples (0 for none), and columns in the slot or the samples.

    ``bad`` lists samples that could not be used; skipped ones are missing from ``raw``.
    """

    start: int
    stop: int
    layout: int
    raw: list[Any] | None = None
    skeleton: Any = None
    columns: tuple[Column, ...] = ()
    nbytes: int = 0
    bad: tuple[Any, ...] = ()

    @property
    def short(self) -> bool:
        """Whether rows are missing."""
        return self.raw is not None and len(self.raw) < self.stop - self.start

    def regions(self) -> list[tuple[int, int]]:
        """Where its rows lie in the shared slot: (offset, bytes) of each column."""
        found = []
        for column in self.columns:
            if column.dtype is not None:
                row_bytes = column.dtype.itemsize * _product(column.shape)
                found.append((column.offset + self.start * row_bytes, (self.stop - self.start) * row_bytes))
        return [each for each in found if each[1]]


class _Irregular(Exception):
    """Raised when rows cannot be placed."""


def collate_part(
    samples: Sequence[Any], slot: PlacedMemory, *, start: int, rows: int, agreed: int
) -> PartRows:
    """Write samples to the rows from ``start`` on of a batch of ``rows``, if their layout is the agreed one.

    Called by a worker, on its own thread. ``agreed`` is the layout that the parent announced, or 0.
    """
    stop = start + len(samples)
    layout = 0
    try:
        leaves: list[Sequence[Any]] = []
        skeleton = _skeleton(list(samples), leaves)
        stacked = [_stack(leaf) for leaf in leaves]
        columns, nbytes = _lay_out(leaves, stacked, rows)
        layout = _fingerprint(skeleton, columns)
        if layout == agreed:
            for column, rows_of in zip(columns, stacked, strict=True):
                _place(column, rows_of, slot, start, len(samples))
            return PartRows(start, stop, layout, None, skeleton, columns, nbytes)
    except (_Irregular, TypeError, ValueError, RuntimeError, OverflowError):
        layout = 0
    return PartRows(start, stop, layout, list(samples))


def join_placed(parts: Sequence[PartRows], tensor: TensorAt) -> Any:
    """Return the batch whose rows all lie in their places. Called in the parent."""
    first = parts[0]
    rows = parts[-1].stop
    leaves: list[Any] = []
    for number, column in enumerate(first.columns):
        if column.dtype is None:
            values = [value for part in parts for value in part.columns[number].values or ()]
            leaves.append(tuple(values) if isinstance(column.values, tuple) else values)
        else:
            leaves.append(tensor(column.offset, (rows, *column.shape), column.dtype))
    return _fill(first.skeleton, leaves)


def samples_of(parts: Sequence[PartRows], tensor: TensorAt) -> list[Any]:
    """Return the samples of these parts, in row order. Called in the parent."""
    samples: list[Any] = []
    for part in parts:
        samples += part.raw if part.raw is not None else _take_apart(part, tensor)
    return samples


def _take_apart(part: PartRows, tensor: TensorAt) -> list[Any]:
    leaves: list[Sequence[Any]] = []
    count = part.stop - part.start
    for column in part.columns:
        kind = column.kind
        if column.dtype is None:
            leaves.append(column.values or ())
            continue
        row_bytes = column.dtype.itemsize * _product(column.shape)
        rows = tensor(column.offset + part.start * row_bytes, (count, *column.shape), column.dtype).clone()
        if kind is torch.Tensor:
            leaves.append(list(rows))
        elif kind is np.ndarray:
            leaves.append([row.numpy() for row in rows])
        else:
            leaves.append([kind(value) for value in rows.tolist()])
    return [_fill(part.skeleton, [leaf[row] for leaf in leaves], tuples=True) for row in range(count)]


def _lay_out(
    leaves: Sequence[Sequence[Any]], stacked: Sequence[Any], rows: int
) -> tuple[tuple[Column, ...], int]:
    """Return a place for every column of a batch with this many rows, and the end of the last one."""
    columns: list[Column] = []
    cursor = 0
    for leaf, tensors in zip(leaves, stacked, strict=True):
        kind = type(leaf[0])
        if tensors is None:
            columns.append(Column(kind, values=leaf))
            continue
        head = tensors[0]
        columns.append(Column(kind, cursor, tuple(head.shape), head.dtype))
        row_bytes = head.dtype.itemsize * _product(head.shape)
        cursor += -(-rows * row_bytes // _ALIGN) * _ALIGN
    return tuple(columns), cursor


def _fingerprint(skeleton: Any, columns: Sequence[Column]) -> int:
    """Return a number that parts share exactly when their rows fit together; never 0."""
    text = repr((skeleton, [(column.kind, column.shape, column.dtype) for column in columns]))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1 or 1


def _place(column: Column, rows_of: Any, slot: PlacedMemory, start: int, count: int) -> None:
    if column.dtype is None:
        return
    row_bytes = column.dtype.itemsize * _product(column.shape)
    place = slot.tensor_at(column.offset + start * row_bytes, (count, *column.shape), column.dtype)
    if isinstance(rows_of, torch.Tensor):
        place.copy_(rows_of)
    else:
        torch.stack(rows_of, 0, out=place)


@dataclass(frozen=True, slots=True)
class _ColumnNumber:
    number: int


@dataclass(frozen=True, slots=True)
class _ContainerShape:
    """A container in a sample: its type, its keys if it has any, and its contents."""

    type: type
    keys: tuple[Any, ...] | None
    inside: tuple[Any, ...]


def _skeleton(values: Sequence[Any], leaves: list[Sequence[Any]]) -> _ContainerShape | _ColumnNumber:
    """Return the structure that all samples share; collect their leaves column by column."""
    first = values[0]
    kind = type(first)
    if any(type(value) is not kind for value in values):
        raise _Irregular
    if kind is dict:
        keys = tuple(first)
        if any(value.keys() != first.keys() for value in values):
            raise _Irregular
        return _ContainerShape(
            kind, keys, tuple(_skeleton([value[key] for value in values], leaves) for key in keys)
        )
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        if any(len(value) != len(first) for value in values):
            raise _Irregular
        # A column of a sequence stays the tuple that zip makes, as in torch: collated strings keep that type.
        return _ContainerShape(
            kind, None, tuple(_skeleton(column, leaves) for column in zip(*values, strict=True))
        )
    leaves.append(values)
    return _ColumnNumber(len(leaves) - 1)


def _fill(node: Any, leaves: Sequence[Any], *, tuples: bool = False) -> Any:
    """Build a container from a skeleton. Collated tuples become lists, as in torch, unless ``tuples`` asks for samples."""
    if isinstance(node, _ColumnNumber):
        return leaves[node.number]
    inside = [_fill(child, leaves, tuples=tuples) for child in node.inside]
    if node.keys is not None:
        return dict(zip(node.keys, inside, strict=True))
    if hasattr(node.type, "_fields"):
        return node.type(*inside)
    return tuple(inside) if tuples and node.type is tuple else inside


def _stack(leaf: Sequence[Any]) -> torch.Tensor | Sequence[torch.Tensor] | None:
    """Return a column as one tensor, or as equal tensors to stack in place, or None for strings."""
    first = leaf[0]
    kind = type(first)
    if kind is torch.Tensor or kind is np.ndarray:
        tensors = leaf if kind is torch.Tensor else [torch.as_tensor(value) for value in leaf]
        head = tensors[0]
        if (
            head.device.type != "cpu"
            or head.layout is not torch.strided
            or head.is_nested
            or head.is_quantized
        ):
            raise _Irregular
        if any(t.dtype is not head.dtype or t.shape != head.shape or t.requires_grad for t in tensors):
            raise _Irregular
        return tensors
    if kind is str or kind is bytes:
        return None
    if kind is float:
        return torch.tensor(leaf, dtype=torch.float64)
    if kind is int or kind is bool:
        return torch.tensor(leaf)
    if isinstance(first, np.bool_ | np.number):
        return torch.as_tensor(leaf)
    raise _Irregular


def _product(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
