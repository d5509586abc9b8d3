"""Rows of one batch made by several workers: each writes its rows to their places in the one slot, the parent joins them.

The places follow from the first sample and the number of rows alone, so no worker waits for another. Only what torch's own
collation
does with plain dicts, lists, tuples and named tuples of tensors, arrays, numbers and strings is done here. A part that holds
anything else, or whose own rows differ among themselves, is sent as raw samples; parts that differ from each other are taken apart
into samples again. In both cases the parent collates the samples as torch would: nothing is fetched twice and nothing
changes, and the loader then stops splitting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import default_collate

_ALIGN = 64


class PlacedMemory(Protocol):
    """Slot memory with fixed places; the transport's SlotWriter."""

    def tensor_at(self, offset: int, shape: Any, dtype: torch.dtype) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of the sample over all rows of a part: rows in the slot, or the strings themselves.

    ``kind`` is the Python type the samples had; it decides whether parts go together.
    """

    kind: str
    offset: int = 0
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    values: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class PartRows:
    """What a worker reports of a part: a skeleton whose leaves are column numbers, or raw samples."""

    start: int
    stop: int
    skeleton: Any
    columns: tuple[Column, ...]
    nbytes: int
    raw: list[Any] | None = None


class _Irregular(Exception):
    """These rows are not for splitting."""


def collate_part(samples: Sequence[Any], slot: PlacedMemory, *, start: int, rows: int) -> PartRows:
    """Write these samples as rows ``start``… of a batch of ``rows``. Called by a worker, on its own thread."""
    stop = start + len(samples)
    columns: list[Column] = []
    cursor = 0
    try:
        leaves: list[list[Any]] = []
        skeleton = _skeleton(list(samples), leaves)
        stacked = [_stack(leaf) for leaf in leaves]
        for leaf, tensor in zip(leaves, stacked, strict=True):
            kind = type(leaf[0]).__name__
            if tensor is None:
                columns.append(Column(kind, values=leaf))
                continue
            shape = tuple(tensor.shape[1:]) if isinstance(tensor, torch.Tensor) else tuple(tensor[0].shape)
            dtype = tensor.dtype if isinstance(tensor, torch.Tensor) else tensor[0].dtype
            row_bytes = dtype.itemsize * _product(shape)
            place = slot.tensor_at(cursor + start * row_bytes, (len(leaf), *shape), dtype)
            if isinstance(tensor, torch.Tensor):
                place.copy_(tensor)
            else:
                torch.stack(tensor, 0, out=place)
            columns.append(Column(kind, cursor, shape, dtype))
            cursor += -(-rows * row_bytes // _ALIGN) * _ALIGN
    except (_Irregular, TypeError, ValueError, RuntimeError, OverflowError):
        return PartRows(start, stop, None, (), 0, raw=list(samples))
    return PartRows(start, stop, skeleton, tuple(columns), cursor)


def join_parts(
    parts: Sequence[PartRows], tensor: Callable[[int, Sequence[int], torch.dtype], torch.Tensor]
) -> tuple[Any, bool]:
    """The batch made of these parts, in row order, and whether they fitted together. Called in the parent.

    ``tensor`` builds a tensor over the shared slot. When parts do not fit the samples are put together again and collated.
    """
    first = parts[0]
    rows = parts[-1].stop
    if all(_fits(first, part) for part in parts):
        leaves: list[Any] = []
        for number, column in enumerate(first.columns):
            if column.dtype is None:
                leaves.append([value for part in parts for value in part.columns[number].values or ()])
            else:
                leaves.append(tensor(column.offset, (rows, *column.shape), column.dtype))
        return _fill(first.skeleton, leaves), True
    samples: list[Any] = []
    for part in parts:
        samples += part.raw if part.raw is not None else _take_apart(part, tensor)
    return default_collate(samples), False


def _fits(first: PartRows, other: PartRows) -> bool:
    if first.raw is not None or other.raw is not None or first.skeleton != other.skeleton:
        return False
    return all(
        a.kind == b.kind and a.offset == b.offset and a.shape == b.shape and a.dtype == b.dtype
        for a, b in zip(first.columns, other.columns, strict=True)
    )


def _take_apart(
    part: PartRows, tensor: Callable[[int, Sequence[int], torch.dtype], torch.Tensor]
) -> list[Any]:
    """The samples a part was made of, as far as collation can tell."""
    leaves: list[list[Any]] = []
    count = part.stop - part.start
    for column in part.columns:
        if column.dtype is None:
            leaves.append(list(column.values or ()))
            continue
        row_bytes = column.dtype.itemsize * _product(column.shape)
        rows = tensor(column.offset + part.start * row_bytes, (count, *column.shape), column.dtype)
        leaves.append(rows.tolist() if column.kind in ("int", "float", "bool") else list(rows.clone()))
    return [_fill(part.skeleton, [leaf[row] for leaf in leaves], tuples=True) for row in range(count)]


@dataclass(frozen=True, slots=True)
class _Leaf:
    number: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A container of the sample: its type, its keys if it has any, and what is inside."""

    type: type
    keys: tuple[Any, ...] | None
    inside: tuple[Any, ...]


def _skeleton(values: list[Any], leaves: list[list[Any]]) -> _Node | _Leaf:
    """The structure all samples share; their leaves are collected column by column."""
    first = values[0]
    kind = type(first)
    if any(type(value) is not kind for value in values):
        raise _Irregular
    if kind is dict:
        keys = tuple(first)
        if any(value.keys() != first.keys() for value in values):
            raise _Irregular
        return _Node(kind, keys, tuple(_skeleton([value[key] for value in values], leaves) for key in keys))
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        if any(len(value) != len(first) for value in values):
            raise _Irregular
        return _Node(
            kind, None, tuple(_skeleton(list(column), leaves) for column in zip(*values, strict=True))
        )
    leaves.append(values)
    return _Leaf(len(leaves) - 1)


def _fill(node: Any, leaves: Sequence[Any], *, tuples: bool = False) -> Any:
    """Build a container from a skeleton. Collated tuples become lists, as in torch, unless ``tuples`` asks for samples."""
    if isinstance(node, _Leaf):
        return leaves[node.number]
    inside = [_fill(child, leaves, tuples=tuples) for child in node.inside]
    if node.keys is not None:
        return dict(zip(node.keys, inside, strict=True))
    if hasattr(node.type, "_fields"):
        return node.type(*inside)
    return tuple(inside) if tuples and node.type is tuple else inside


def _stack(leaf: list[Any]) -> torch.Tensor | list[torch.Tensor] | None:
    """A column as one tensor, or as equal tensors to be stacked in place, or None for strings, which stay a list."""
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
