"""Owns the shared memory in the parent: one sparse file divided into slots, and leases on written batches.

    put(index, task) ─▶ worker: open, peek, write ─▶ lease ─▶ Region ─▶ tensors ─▶ (last one dies) ─▶ released

A slot is a window of ``stride`` bytes of a sparse file, 64 GiB by default. Only pages that were touched exist. So a batch always
fits, and no slot is ever moved or resized (docs/adr/0002-sparse-slots.md).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker._runtime.scheduler.types import SlotRef
from stoker._runtime.transport import rebuild, shared_pages
from stoker._runtime.transport.codec import decode

DEFAULT_STRIDE = 1 << 36
FILE_STRIDE = 1 << 33
"""The stride on a real file system, where a file's length is limited (ext4: 16 TiB)."""

_MIN_STRIDE = 1 << 24
_FIRST_SLOTS = 64


class _LeaseEnd(weakref.ref[Any]):
    """Watches the anchor of a lease; knows its slot and how much of it the user reads."""

    __slots__ = ("nbytes", "ref")
    ref: SlotRef
    nbytes: int


class Region:
    """The bytes of one batch. It keeps the lease, and so does every tensor, view or alias built from it.

    Any thread; the only state is the buffer.
    """

    __slots__ = ("_buffer", "_nbytes")

    def __init__(self, buffer: Any, nbytes: int = 0) -> None:
        self._buffer = buffer
        self._nbytes = nbytes

    @property
    def memory(self) -> LeasedSlot | None:
        """The slot, for a device; None for a copy of it."""
        return LeasedSlot(self._buffer, self._nbytes) if self._nbytes else None

    def tensor(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a contiguous, writable tensor over the region. An empty one holds no lease."""
        return rebuild.tensor(self._buffer, offset, shape, dtype)

    def load(self, root_offset: int, root_bytes: int) -> Any:
        """Return the object that ``SlotWriter.write`` encoded, from the root named in its receipt."""
        return decode(self._buffer, self._buffer[root_offset : root_offset + root_bytes])

    def root(self, root_offset: int, root_bytes: int) -> bytes:
        """Return that root: what describes the batch."""
        return bytes(self._buffer[root_offset : root_offset + root_bytes])


class LeasedSlot:
    """A leased slot, as a device sees it. Keeps the lease."""

    __slots__ = ("_anchor", "nbytes")

    def __init__(self, anchor: Any, nbytes: int) -> None:
        self._anchor = anchor
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """Where it begins."""
        address: int = self._anchor.mapping.address
        return address

    @property
    def locked_bytes(self) -> int:
        """How many of its bytes, from the beginning, are registered with a driver."""
        page_lock = self._anchor.mapping.page_lock
        return 0 if page_lock is None else page_lock.nbytes

    def lock(self, register: Callable[[int, int], int], unregister: Callable[[int], int]) -> int:
        """Register it with a driver, for as long as the slot keeps its pages. Returns the driver's answer: 0, or an error."""
        code: int = self._anchor.mapping.lock(self.nbytes, register, unregister)
        return code

    def bytes_at(self, start: int, stop: int) -> torch.Tensor:
        """These bytes of it, as a tensor that keeps the lease."""
        return rebuild.tensor(self._anchor, start, (stop - start,), torch.uint8)


class Arena:
    """Owns the shared file. Caller: the pool, in the parent process, from one thread at a time.

    ``released`` is the exception. A lease ends where its last tensor dies: on any thread, even inside garbage collection. It
    only appends its slot to this deque, and the pool drains it. In a forked child nothing is appended. Where RLIMIT_FSIZE or
    the file system refuses the length, ``stride`` becomes smaller than requested.
    """

    def __init__(self, *, backing: shared_pages.Backing | None = None, stride: int = DEFAULT_STRIDE) -> None:
        if stride % shared_pages.MIN_MAPPING_BYTES:
            raise ValueError(f"stride must be a multiple of {shared_pages.MIN_MAPPING_BYTES}, got {stride}")
        self.fd, self.backing = shared_pages.create(backing)
        self.stride = min(stride, FILE_STRIDE) if self.backing == "file" else stride
        self.released: deque[SlotRef] = deque()
        self._mappings: dict[int, shared_pages.SharedMapping] = {}
        self._leases: dict[int, _LeaseEnd] = {}
        self._lease_ended = _lease_ended(self._leases, self.released)
        self._slots = 0
        self._bare: set[int] = set()
        """Slots whose pages were returned and that no worker has used since."""
        self._open = threading.RLock()
        try:
            self._fit_stride()
        except BaseException:
            self.close()
            raise

    @property
    def reserve(self) -> bool:
        """Whether writers must reserve pages before touching them (``ArenaWriter(reserve=...)``)."""
        return self.backing == "file"

    def prepare(self, index: int) -> None:
        """Make slot ``index`` exist before a worker uses it, where no ``put`` does."""
        if index >= self._slots:
            slots = max(index + 1, 2 * self._slots)
            os.ftruncate(self.fd, slots * self.stride)
            self._slots = slots
        if self._bare:
            self._bare.discard(index)

    def put(self, index: int, payload: bytes | memoryview) -> None:
        """Write a task payload at the beginning of a free slot."""
        nbytes = len(payload)
        self._bare.discard(index)
        mapping = self._mapping(index, nbytes)
        if self.reserve:
            shared_pages.reserve(self.fd, index * self.stride, nbytes)
        mapping.view[:nbytes] = payload

    def lease(self, ref: SlotRef, nbytes: int) -> Region:
        """Return a region over the slot's first ``nbytes``; when its last user dies, ``ref`` goes to ``released``."""
        mapping = self._mappings.get(ref.index)
        if mapping is None or nbytes > mapping.length:
            mapping = self._mapping(ref.index, nbytes)
        anchor = mapping.anchor()
        end = _LeaseEnd(anchor, self._lease_ended)
        end.ref = ref
        end.nbytes = nbytes
        self._leases[id(end)] = end
        return Region(anchor, nbytes)

    def copy_out(self, ref: SlotRef, nbytes: int) -> Region:
        """Return a region over a private copy of the slot's first ``nbytes``; the slot is free again at once."""
        mapping = self._mapping(ref.index, nbytes)
        return Region(bytearray(mapping.view[:nbytes]))

    def trim(self, index: int) -> None:
        """Return a free slot's pages to the system; its contents become zeros. Does nothing after ``close``."""
        with self._open:  # a descriptor that is closed meanwhile could become another file
            if index < self._slots and self.fd >= 0 and index not in self._bare:
                self._bare.add(index)
                mapping = self._mappings.get(index)
                if mapping is not None:
                    mapping.unlock()
                shared_pages.punch(self.fd, index * self.stride, self.stride)

    def shrink(self, free: Sequence[int], keep_bytes: int) -> None:
        """Return pages of these free slots, in order, until the rest takes ``keep_bytes`` at most."""
        keep_bytes += self.leased_bytes()
        for index in free:
            if self.resident_bytes() <= keep_bytes:
                return
            self.trim(index)

    def unmap(self, index: int) -> None:
        """Drop our mapping of an unused slot. Leases keep theirs."""
        self._mappings.pop(index, None)

    def resident_bytes(self) -> int:
        """Return the bytes that the arena occupies; 0 once it is closed. Any thread."""
        fd = self.fd
        return os.fstat(fd).st_blocks * 512 if fd >= 0 else 0

    def leased_bytes(self) -> int:
        """Return the bytes of batches that the user keeps. Any thread."""
        return sum([end.nbytes for end in list(self._leases.values())])

    def locked_bytes(self) -> int:
        """Return the bytes that are registered with a driver. Any thread."""
        locks = [mapping.page_lock for mapping in list(self._mappings.values())]
        return sum([each.nbytes for each in locks if each is not None])

    def close(self) -> None:
        """Close the descriptor. Idempotent. Live leases stay valid and unmap with their last tensor."""
        with self._open:
            fd, self.fd = self.fd, -1  # first: after an interrupt nobody may close that number again
            if fd >= 0:
                os.close(fd)
        self._mappings.clear()

    def _fit_stride(self) -> None:
        while True:
            try:
                self.prepare(_FIRST_SLOTS - 1)
                return
            except OSError:
                if self.stride <= _MIN_STRIDE:
                    raise
                self.stride >>= 1

    def _mapping(self, index: int, nbytes: int) -> shared_pages.SharedMapping:
        mapping = self._mappings.get(index)
        if mapping is None or nbytes > mapping.length:
            self.prepare(index)
            length = shared_pages.mapping_bytes(nbytes, self.stride)
            mapping = self._mappings[index] = shared_pages.SharedMapping(self.fd, index * self.stride, length)
        return mapping


def _lease_ended(leases: dict[int, _LeaseEnd], released: deque[SlotRef]) -> Callable[[_LeaseEnd], None]:
    """Return the callback of an arena's leases. It refers to no arena, so leases do not keep one alive."""
    owner = os.getpid()

    def ended(end: _LeaseEnd, getpid: Callable[[], int] = os.getpid) -> None:
        leases.pop(id(end), None)
        if getpid() == owner:
            released.append(end.ref)

    return ended
