"""Decides where the bytes of a batch go: each leaf (tensor, array, storage, buffer) gets an aligned region.

Batches of plain tensors, the common case, get their table as columns (:class:`Columns`), built in one pass. In every other batch
each leaf has an entry: a tuple of integers, strings and tuples, because tables travel through ``marshal``.
:mod:`stoker._runtime.transport.rebuild` reads both:

    (offset, code, shape)                              contiguous tensor
    (offset, code, shape, strides)                     tensor with strides, alone on its storage
    (offset, code, shape, strides, region, nbytes)     tensor over a region that several leaves share
    (offset, dtype, shape, strides)                    numpy array: dtype as text or pickle, strides in bytes
    (offset, nbytes)                                   buffer
    (offset, nbytes, STORAGE)                          torch storage
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from stoker._runtime.transport.dtypes import CODE, NATIVE_CODE

ALIGN_BYTES = 64
STORAGE = -1
"""Third field of a storage's entry (where a tensor has its shape)."""

_OFFSET_ALIGN = 16
"""A shared region starts on a multiple of the widest element, so offsets of its members are whole elements."""

_Tensor = torch.Tensor
_strided = torch.strided
_facts = attrgetter("is_cpu", "layout", "requires_grad", "is_nested", "__dict__")
_MAX_NUMPY_DIMS = 32

_COMPLEX = frozenset(dtype for dtype in CODE if dtype.is_complex)
_QUANTISED = frozenset(dtype for dtype in CODE if str(dtype).startswith(("torch.qint", "torch.quint")))

Entry = tuple[Any, ...]
Columns = tuple[list[int], list[int], list[tuple[int, ...]]]
"""Offsets, dtype codes and shapes of contiguous, non-empty tensors, each on a storage of its own."""
Span = tuple[int, int, int, int, int]
"""(block, low, high, used, first) of a leaf, as addresses: the block that it shares with others (0: none), the lowest and highest
address that it reaches, the bytes it uses of those, and its first element.
"""
Window = tuple[int, int]
"""Addresses [start, end) at which this slot is mapped. Data inside is already in place."""


class BatchLayout:
    """The places of a batch's leaves, and the copies to be made. One per encoded batch; single thread.

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
        """Return the table of a batch of plain tensors; None, with nothing changed, if a leaf is anything else.

        A plain tensor is contiguous, not empty, alone on its storage, and of a dtype that numpy has. ``checked`` says that
        tensors among the leaves are known to be :func:`is_bare`.
        """
        offsets: list[int] = []
        codes: list[int] = []
        shapes: list[tuple[int, ...]] = []
        copies: list[tuple[int, int, int]] = []
        blocks: set[int] = set()
        cursor, windows, native_code = self.cursor, self._windows, NATIVE_CODE.get
        try:
            for leaf in leaves:
                if type(leaf) is not _Tensor:
                    return None
                code, shape, nbytes = native_code(leaf.dtype), (*leaf.shape,), leaf.nbytes
                if code is None or not nbytes or len(shape) > _MAX_NUMPY_DIMS or not leaf.is_contiguous():
                    return None
                if not checked and (leaf.requires_grad or not leaf.is_cpu or leaf.is_neg() or leaf.__dict__):
                    return None
                if leaf.dtype in _COMPLEX and leaf.is_conj():
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
        except RuntimeError:
            # A sparse tensor has no storage and a nested one no shape: asking costs less than a check for each.
            return None
        self.cursor, self.copies = cursor, copies
        return offsets, codes, shapes

    def place(self, leaves: Sequence[Any]) -> list[Entry]:
        """Return the entries of any leaves, in order. Leaves must stay alive until the copies are made."""
        spans = [_span(leaf) for leaf in leaves]
        entries: dict[int, Entry] = {}
        for members in _shared(spans):
            self._place_group(leaves, spans, members, entries)
        return [
            entries.get(number) or self._lone(leaf, span)
            for number, (leaf, span) in enumerate(zip(leaves, spans, strict=True))
        ]

    def _region(self, address: int, nbytes: int) -> int:
        """Return the offset for the bytes from ``address`` on; memory of this slot stays where it is."""
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

    def _lone(self, leaf: Any, span: Span) -> Entry:
        """Return the entry of a leaf that shares too little memory with others for a common region."""
        _, low, high, used, first = span
        compact = high - low > 2 * used and not self._resident(low)
        if type(leaf) is _Tensor:
            shape, strides, code = tuple(leaf.shape), leaf.stride(), CODE[leaf.dtype]
            if compact:
                return self._compact_tensor(leaf, code, shape, strides)
            offset = self._region(low, high - low)
            ordinary = strides == contiguous_strides(shape)
            return (offset, code, shape) if ordinary else (offset, code, shape, strides)
        if type(leaf) is np.ndarray:
            if compact:
                return self._compact_array(leaf)
            offset = self._region(low, high - low) + first - low
            return (offset, _dtype_name(leaf.dtype), leaf.shape, leaf.strides)
        offset = self._region(low, used)
        return (offset, used, STORAGE) if isinstance(leaf, torch.UntypedStorage) else (offset, used)

    def _compact_tensor(
        self, tensor: torch.Tensor, code: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Entry:
        compact, nbytes = _compact(shape, strides, tensor.itemsize)
        offset = self.cursor
        self.strided.append((offset, tensor, compact))
        self.cursor = (offset + nbytes + ALIGN_BYTES - 1) & -ALIGN_BYTES
        return (offset, code, shape, compact)

    def _compact_array(self, array: np.ndarray[Any, Any]) -> Entry:
        once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)
        dense = array[once].copy("K")
        self._keep.append(dense)
        strides = tuple(new if old else 0 for old, new in zip(array.strides, dense.strides, strict=True))
        return (self._region(_address(dense), dense.nbytes), _dtype_name(array.dtype), array.shape, strides)

    def _place_group(
        self, leaves: Sequence[Any], spans: Sequence[Span], members: list[int], entries: dict[int, Entry]
    ) -> None:
        """Give leaves over one storage one region, unless it has more than twice the bytes they use."""
        block = spans[members[0]][0]
        low = block + ((min(spans[number][1] for number in members) - block) & -_OFFSET_ALIGN)
        high = max(spans[number][2] for number in members)
        if high - low > 2 * sum(spans[number][3] for number in members) and not self._resident(low):
            entries.update((number, self._lone(leaves[number], spans[number])) for number in members)
            return
        region, nbytes = self._region(low, high - low), high - low
        for number in members:
            leaf, offset = leaves[number], region + spans[number][4] - low
            if type(leaf) is _Tensor:
                entries[number] = (offset, CODE[leaf.dtype], tuple(leaf.shape), leaf.stride(), region, nbytes)
            elif type(leaf) is np.ndarray:
                entries[number] = (offset, _dtype_name(leaf.dtype), leaf.shape, leaf.strides)
            else:
                entries[number] = (region, nbytes, STORAGE)


def is_bare(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but bytes, a dtype, a shape and strides in this process's memory."""
    cpu, layout, grad, nested, attributes = _facts(tensor)
    if grad or nested or attributes or not cpu or layout is not _strided or tensor.is_neg():
        return False
    dtype = tensor.dtype
    return not (dtype in _QUANTISED or (dtype in _COMPLEX and tensor.is_conj()))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a new tensor, in elements."""
    strides, step = [1] * len(shape), 1
    for dim in range(len(shape) - 1, -1, -1):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _shared(spans: Sequence[Span]) -> list[list[int]]:
    """Return the numbers of the leaves in one block, for every block with more than one leaf."""
    first: dict[int, int] = {}
    shared: dict[int, list[int]] = {}
    for number, (block, *_) in enumerate(spans):
        other = first.setdefault(block, number) if block else number
        if other != number:
            shared.setdefault(block, [other]).append(number)
    return list(shared.values())


def _span(leaf: Any) -> Span:
    """Return where a leaf lies. Repeated elements of expanded dimensions count once."""
    if type(leaf) is _Tensor:
        block, first, nbytes = leaf.untyped_storage().data_ptr(), leaf.data_ptr(), leaf.nbytes
        if leaf.is_contiguous():
            return block, first, first + nbytes, nbytes, first
        itemsize = leaf.itemsize
        return block, *_reach(first, leaf.shape, [stride * itemsize for stride in leaf.stride()], itemsize)
    if type(leaf) is np.ndarray:
        first, nbytes = _address(leaf), leaf.nbytes
        block = first if leaf.base is None else _block(leaf)
        if leaf.flags.c_contiguous:
            return block, first, first + nbytes, nbytes, first
        return block, *_reach(first, leaf.shape, leaf.strides, leaf.itemsize)
    if isinstance(leaf, torch.UntypedStorage):
        first, nbytes = leaf.data_ptr(), leaf.nbytes()
        return first, first, first + nbytes, nbytes, first
    raw = np.frombuffer(leaf.raw(), np.uint8)
    first = _address(raw)
    return 0, first, first + raw.nbytes, raw.nbytes, first


def _block(array: np.ndarray[Any, Any]) -> int:
    """Return the address of the memory that an array is a view of."""
    while type(array.base) is np.ndarray:
        array = array.base
    owner: Any = array.base
    return owner.untyped_storage().data_ptr() if isinstance(owner, _Tensor) else _address(array)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _reach(
    first: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int, int, int]:
    """Return (lowest address, end, bytes in use, first element) for strides in bytes, which may be negative or 0."""
    low, high, used = first, first + itemsize, itemsize
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return first, first, 0, first
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
        if stride:
            used *= size
    return low, high, used, first


def _compact(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[tuple[int, ...], int]:
    """Return dense strides in the same order of dimensions, and the bytes they span. Expanded dimensions stay so."""
    compact, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (strides[dim], -dim)):
        if strides[dim]:
            compact[dim] = step
            step *= shape[dim]
    return tuple(compact), step * itemsize


def _dtype_name(dtype: np.dtype[Any]) -> str | bytes:
    """Return a dtype as its type string; pickled where that is not enough (fields, foreign dtypes)."""
    return dtype.str if dtype.isbuiltin == 1 else pickle.dumps(dtype)
