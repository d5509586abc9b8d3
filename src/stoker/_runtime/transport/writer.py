"""Gives a worker its side of the arena: slots to collate into, and ``write`` for everything else."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from stoker._runtime.transport import rebuild, shared_pages
from stoker._runtime.transport.base import WrittenBatch
from stoker._runtime.transport.codec import encode
from stoker._runtime.transport.layout import ALIGN_BYTES, Window

_PRUNE_ABOVE = 8


class SlotWriter:
    """One slot for one worker. Owner: :class:`ArenaWriter`; caller: the worker's loop, one thread.

    Between two ``open`` calls comes ``peek`` (the task), then ``tensor`` and ``tensor_at`` any number of times, then ``write``.
    When the worker has dropped its batch, ``held`` follows. The slot's memory may be written only until the receipt is sent.
    """

    def __init__(self, fd: int, index: int, stride: int, *, reserve: bool) -> None:
        self._fd = fd
        self._start = index * stride
        self._stride = stride
        self._reserved: int | None = 0 if reserve else None
        self._mapping = self._map(shared_pages.MIN_MAPPING_BYTES)
        self._older: list[shared_pages.SharedMapping] = []
        self._windows: list[Window] = []
        self._anchor: Any = None
        self._anchors: list[weakref.ref[Any]] = []
        self._cursor = 0

    def reset(self) -> None:
        """Begin a new batch: the whole slot is free again. Called by ``ArenaWriter.open``."""
        self._cursor = 0
        self._older.clear()
        if self._reserved is not None:
            # The parent may have trimmed the slot since: what was reserved then may be a hole now.
            self._reserved = 0
        self._take(self._mapping)
        self._windows = [(self._mapping.address, self._mapping.limit)]

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return uninitialised memory of the slot, 64-byte aligned, that nothing else in this batch uses."""
        return self.tensor_at(self._cursor, shape, dtype)

    def tensor_at(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor at a fixed place, for rows of one batch that several workers make.

        ``offset`` must be a multiple of the element size. Later ``tensor`` calls avoid it.
        """
        nbytes = dtype.itemsize
        for size in shape:
            nbytes *= size
        end = offset + nbytes
        self._ensure(end)
        if end > self._cursor:
            self._cursor = (end + ALIGN_BYTES - 1) & -ALIGN_BYTES
        return rebuild.tensor(self._anchor, offset, shape, dtype)

    def peek(self, nbytes: int) -> bytes:
        """Return the task payload that the parent put at the start of the slot. Call it before writing anything."""
        if nbytes > self._mapping.length:
            self._grow(nbytes)
        return bytes(self._mapping.view[:nbytes])

    def write(self, obj: object) -> WrittenBatch:
        """Encode a batch into the slot. Tensors that already lie in the slot are not copied.

        Raises UnsendableError with the part that cannot be pickled, and OSError when there is no room for the pages.
        """
        encoded = encode(obj, self._cursor, self._windows)
        root, start = encoded.root, encoded.end
        end = start + len(root)
        self._ensure(end)
        encoded.copy_to(self._anchor, self._mapping.address)
        self._mapping.view[start:end] = root
        self._cursor = end
        return WrittenBatch(start, len(root), end)

    def append(self, data: bytes) -> None:
        """Write bytes behind the batch, at the next multiple of 8. Its receipt does not count them."""
        start = -(-self._cursor // 8) * 8
        self._ensure(start + len(data))
        self._mapping.view[start : start + len(data)] = data

    def held(self) -> bool:
        """Whether anything in this process still holds memory of this slot. Ends the current batch."""
        self._anchor = None
        self._older.clear()
        self._anchors = [anchor for anchor in self._anchors if anchor() is not None]
        return bool(self._anchors)

    def _ensure(self, nbytes: int) -> None:
        """Make the first ``nbytes`` of the slot writable."""
        if nbytes > self._mapping.length:
            self._grow(nbytes)
        if self._reserved is not None and nbytes > self._reserved:
            shared_pages.reserve(self._fd, self._start + self._reserved, nbytes - self._reserved)
            self._reserved = nbytes

    def _grow(self, nbytes: int) -> None:
        """Map more of the slot. Tensors over the shorter mapping stay valid: both show the same pages."""
        longer = self._map(nbytes)
        # Kept for this batch, so that its addresses cannot be reused and mistaken for the slot's.
        self._older.append(self._mapping)
        self._mapping = longer
        self._take(longer)
        self._windows.insert(0, (longer.address, longer.limit))

    def _map(self, nbytes: int) -> shared_pages.SharedMapping:
        length = shared_pages.mapping_bytes(nbytes, self._stride)
        if os.fstat(self._fd).st_size < self._start + length:
            raise ValueError(f"slot at {self._start} was not prepared by the parent")
        return shared_pages.SharedMapping(self._fd, self._start, length)

    def _take(self, mapping: shared_pages.SharedMapping) -> None:
        if len(self._anchors) > _PRUNE_ABOVE:
            self._anchors = [anchor for anchor in self._anchors if anchor() is not None]
        self._anchor = mapping.anchor()
        self._anchors.append(weakref.ref(self._anchor))


class ArenaWriter:
    """All slots of one arena for one worker; single thread. The caller closes ``fd``.

    ``reserve`` must be True for file backing: pages are then allocated before they are touched.
    """

    def __init__(self, fd: int, stride: int, *, reserve: bool = False) -> None:
        self._fd = fd
        self._stride = stride
        self._reserve = reserve
        self._slots: dict[int, SlotWriter] = {}

    def open(self, index: int) -> SlotWriter:
        """Return the empty writer of slot ``index``. The result of an earlier ``open`` of this slot is void."""
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = SlotWriter(self._fd, index, self._stride, reserve=self._reserve)
        slot.reset()
        return slot

    def close(self) -> None:
        """Unmap every slot that no tensor uses any more; the others are unmapped with their last tensor."""
        self._slots.clear()
