"""Where the bytes of a batch go: leaves (tensors, arrays, storages, buffers) to aligned regions.

Batches of plain tensors, the common case, get their table as columns (:class:`Columns`), built in one tight
pass. In every other batch each leaf has an entry: a tuple of integers, strings and tuples, since tables
travel through ``marshal``. :mod:`stoker._transports.rebuild` reads both:

    (offset, code, shape)                              contiguous tensor
    (offset, code, shape, strides)                     tensor with strides, alone on its storage
    (offset, code, shape, strides, region, nbytes)     tensor over a region that several leaves share
    (offset, dtype, shape, strides)                    numpy array: dtype as text or pickle, strides in bytes
    (offset, nbytes)                                   buffer
    (offset, nbytes, STORAGE)                          torch storage
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from stoker._transports.dtypes import CODE, NATIVE_CODE

ALIGN_BYTES = 64
STORAGE = -1
"""Third field of a storage's entry (where a tensor has its shape)."""

_OFFSET_ALIGN = 16
"""A shared region starts on a multiple of the widest element: every member's offset is whole elements."""

_Tensor = torch.Tensor
_strided = torch.strided
_facts = attrgetter("is_cpu", "layout", "requires_grad", "is_nested", "__dict__")
_MAX_NUMPY_DIMS = 32

_COMPLEX = frozenset(dtype for dtype in CODE if dtype.is_complex)
_QUANTISED = frozenset(dtype for dtype in CODE if str(dtype).startswith(("torch.qint", "torch.quint")))

Entry = tuple[Any, ...]
Columns = tuple[list[int], list[int], list[tuple[int, ...]]]
"""Offsets, dtype codes and shapes of contiguous, non-empty tensors, each on a storage of its own."""
Window = tuple[int, int]
"""Addresses [start, end) at which this slot is mapped: what lies inside is already where it should be."""


class Layout:
    """Where a batch's leaves go, and the copies that make it true. One per encoded batch; single thread.

    ``cursor`` is the first free offset. Nothing is copied until the caller has made room up to it.
    """

    __slots__ = ("_keep", "_windows", "copies", "cursor", "strided")

    def __init__(self, cursor: int, windows: Sequence[Window]) -> None:
        self.copies: list[tuple[int, int, int]] = []
        self.strided: list[tuple[int, torch.Tensor, tuple[int, ...]]] = []
        self.cursor = (cursor + ALIGN_BYTES - 1) & -ALIGN_BYTES
        self._windows = windows
        self._keep: list[object] = []

    def place_plain(self, leaves: Sequence[Any], *, checked: bool) -> Columns | None:
        """The table of a batch of plain tensors, or None (and nothing changed) if one is anything else.

        Plain: nothing but bytes, a dtype that numpy has, and a shape; contiguous, not empty, sharing no
        storage. ``checked`` says that tensors among the leaves are known to be :func:`is_bare`.
        """
        offsets: list[int] = []
        codes: list[int] = []
        shapes: list[tuple[int, ...]] = []
        copies: list[tuple[int, int, int]] = []
        blocks: set[int] = set()
        cursor, windows = self.cursor, self._windows
        for leaf in leaves:
            if type(leaf) is not _Tensor or not (checked or is_bare(leaf)):
                return None
            code, shape, nbytes = NATIVE_CODE.get(leaf.dtype), (*leaf.shape,), leaf.nbytes
            if code is None or not nbytes or len(shape) > _MAX_NUMPY_DIMS or not leaf.is_contiguous():
                return None
            if 1 in shape and leaf.stride() != contiguous_strides(shape):
                # Contiguous to torch whatever its stride says, but channels_last may be written in it.
                return None
            block = leaf.untyped_storage().data_ptr()
            if block in blocks:
                return None
            blocks.add(block)
            address = leaf.data_ptr()
            for start, end in windows:
                if start <= address < end:
                    offsets.append(address - start)
                    break
            else:
                offsets.append(cursor)
                copies.append((cursor, address, nbytes))
                cursor = (cursor + nbytes + ALIGN_BYTES - 1) & -ALIGN_BYTES
            codes.append(code)
            shapes.append(shape)
        self.cursor, self.copies = cursor, copies
        return offsets, codes, shapes

    def place(self, leaves: Sequence[Any]) -> list[Entry]:
        """The entries of any leaves, in order. Leaves must stay alive until the copies are made."""
        entries: dict[int, Entry] = {}
        for members in _shared(leaves):
            self._place_group(leaves, members, entries)
        return [entries.get(number) or self._lone(leaf) for number, leaf in enumerate(leaves)]

    def _lone(self, leaf: Any) -> Entry:
        """Entry of a leaf that shares its memory with no other."""
        if type(leaf) is _Tensor:
            return self._lone_tensor(leaf)
        if type(leaf) is np.ndarray:
            return self._lone_array(leaf)
        address, _, nbytes = _extent(leaf)
        offset = self._region(address, nbytes)
        return (offset, nbytes, STORAGE) if isinstance(leaf, torch.UntypedStorage) else (offset, nbytes)

    def _region(self, address: int, nbytes: int) -> int:
        """The offset at which the bytes from ``address`` will be found; memory of this slot stays put."""
        for start, end in self._windows:
            if start <= address < end:
                return address - start
        offset = self.cursor
        if nbytes:
            self.copies.append((offset, address, nbytes))
            self.cursor = (offset + nbytes + ALIGN_BYTES - 1) & -ALIGN_BYTES
        return offset

    def _resident(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._windows)

    def _lone_tensor(self, tensor: torch.Tensor) -> Entry:
        shape, strides, code = tuple(tensor.shape), tensor.stride(), CODE[tensor.dtype]
        if strides == contiguous_strides(shape):
            return (self._region(tensor.data_ptr(), tensor.nbytes), code, shape)
        address, end, used = _extent(tensor)
        if self._resident(address) or end - address <= 2 * used:
            return (self._region(address, end - address), code, shape, strides)
        compact, nbytes = _compact(shape, strides, tensor.itemsize)
        offset = self.cursor
        self.strided.append((offset, tensor, compact))
        self.cursor = (offset + nbytes + ALIGN_BYTES - 1) & -ALIGN_BYTES
        return (offset, code, shape, compact)

    def _lone_array(self, array: np.ndarray[Any, Any]) -> Entry:
        address, end, used = _extent(array)
        if not (self._resident(address) or end - address <= 2 * used):
            once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)
            dense = array[once].copy("K")
            self._keep.append(dense)
            strides = tuple(new if old else 0 for old, new in zip(array.strides, dense.strides, strict=True))
            return (self._region(*_start(dense)), _dtype_name(array.dtype), array.shape, strides)
        offset = self._region(address, end - address) + _start(array)[0] - address
        return (offset, _dtype_name(array.dtype), array.shape, array.strides)

    def _place_group(self, leaves: Sequence[Any], members: list[int], entries: dict[int, Entry]) -> None:
        """One region for leaves over one storage, unless it is more than twice the bytes they use."""
        extents = [_extent(leaves[number]) for number in members]
        start = _key(leaves[members[0]])
        low = start + ((min(extent[0] for extent in extents) - start) & -_OFFSET_ALIGN)
        high = max(extent[1] for extent in extents)
        if not self._resident(low) and high - low > 2 * sum(extent[2] for extent in extents):
            entries.update((number, self._lone(leaves[number])) for number in members)
            return
        region, nbytes = self._region(low, high - low), high - low
        for number, extent in zip(members, extents, strict=True):
            leaf, offset = leaves[number], region + extent[0] - low
            if type(leaf) is _Tensor:
                entries[number] = (offset, CODE[leaf.dtype], tuple(leaf.shape), leaf.stride(), region, nbytes)
            elif type(leaf) is np.ndarray:
                first = offset + _start(leaf)[0] - extent[0]
                entries[number] = (first, _dtype_name(leaf.dtype), leaf.shape, leaf.strides)
            elif isinstance(leaf, torch.UntypedStorage):
                entries[number] = (region, nbytes, STORAGE)
            else:
                entries[number] = (offset, extent[1] - extent[0])


def is_bare(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but bytes, a dtype, a shape and strides in this process's memory."""
    cpu, layout, grad, nested, attributes = _facts(tensor)
    if grad or nested or attributes or not cpu or layout is not _strided or tensor.is_neg():
        return False
    dtype = tensor.dtype
    return not (dtype in _QUANTISED or (dtype in _COMPLEX and tensor.is_conj()))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a freshly made tensor, in elements."""
    strides, step = [1] * len(shape), 1
    for dim in range(len(shape) - 1, -1, -1):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _shared(leaves: Sequence[Any]) -> list[list[int]]:
    """Numbers of the leaves that lie in one storage, for every storage that holds more than one leaf."""
    first: dict[int, int] = {}
    shared: dict[int, list[int]] = {}
    for number, leaf in enumerate(leaves):
        key = _key(leaf)
        if not key:
            continue
        other = first.setdefault(key, number)
        if other != number:
            shared.setdefault(key, [other]).append(number)
    return list(shared.values())


def _key(leaf: Any) -> int:
    """Address of the memory block a leaf lies in, 0 for a leaf that cannot share one."""
    if type(leaf) is np.ndarray:
        while type(leaf.base) is np.ndarray:
            leaf = leaf.base
        if not isinstance(leaf.base, torch.Tensor):
            return int(_start(leaf)[0])
        leaf = leaf.base
    if isinstance(leaf, _Tensor):
        leaf = leaf.untyped_storage()
    return int(leaf.data_ptr()) if isinstance(leaf, torch.UntypedStorage) else 0


def _start(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Address of an array's first element and the bytes of its elements."""
    return array.__array_interface__["data"][0], array.nbytes


def _extent(leaf: Any) -> tuple[int, int, int]:
    """(first address, end address, bytes in use): repeated elements of expanded dimensions count once."""
    if isinstance(leaf, _Tensor):
        address, itemsize = leaf.data_ptr(), leaf.itemsize
        shape, strides = leaf.shape, tuple(stride * itemsize for stride in leaf.stride())
    elif isinstance(leaf, np.ndarray):
        address, itemsize, shape, strides = _start(leaf)[0], leaf.itemsize, leaf.shape, leaf.strides
    elif isinstance(leaf, torch.UntypedStorage):
        return leaf.data_ptr(), leaf.data_ptr() + leaf.nbytes(), leaf.nbytes()
    else:
        raw = np.frombuffer(leaf.raw(), np.uint8)
        address, nbytes = _start(raw)
        return address, address + nbytes, nbytes
    if 0 in shape:
        return address, address, 0
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    used = math.prod(size for size, stride in zip(shape, strides, strict=True) if stride) * itemsize
    return address + sum(r for r in reach if r < 0), address + sum(r for r in reach if r > 0) + itemsize, used


def _compact(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[tuple[int, ...], int]:
    """Dense strides in the same order of dimensions (expanded ones stay so), and the bytes they span."""
    compact, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (strides[dim], -dim)):
        if strides[dim]:
            compact[dim] = step
            step *= shape[dim]
    return tuple(compact), step * itemsize


def _dtype_name(dtype: np.dtype[Any]) -> str | bytes:
    """A dtype as its type string, or pickled where that may not say it all (fields, foreign dtypes)."""
    return dtype.str if dtype.isbuiltin == 1 else pickle.dumps(dtype)
