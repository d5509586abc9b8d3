"""Defines the two sides of a transport as protocols: who calls what, when, on which thread.

    parent, the pool's thread                          worker, its main thread
    ─────────────────────────                          ───────────────────────
    put(index, task)
      ── ticket with SlotRef ──▶                       open(index) → peek → tensor … → write
      ◀── header with the WrittenBatch ──                   drop the batch, then held()
    lease(ref, nbytes) → Region.load

    whichever thread drops the last tensor: released.append(ref), nothing else

An executor on another host has neither: it sends :func:`stoker.testing.heap_codec.dumps` in its messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from stoker._runtime.scheduler.types import SlotRef


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What a worker reports about a written batch: small integers for a fixed header.

    ``root_offset`` and ``root_bytes`` say where its root lies, ``nbytes`` how much of the slot to map.
    """

    root_offset: int
    root_bytes: int
    nbytes: int


class HostMemory(Protocol):
    """The slot of one batch, as a device sees it. Keeps the lease. On the thread that iterates."""

    @property
    def address(self) -> int:
        """Where it begins."""
        ...

    @property
    def nbytes(self) -> int:
        """How many bytes the batch takes."""
        ...

    @property
    def locked_bytes(self) -> int:
        """How many of its bytes, from the beginning, are registered with a driver."""
        ...

    def lock(self, register: Callable[[int, int], int], unregister: Callable[[int], int]) -> int:
        """Register it with a driver, for as long as the slot keeps its pages. Returns the driver's answer: 0, or an error."""
        ...

    def bytes_at(self, start: int, stop: int) -> torch.Tensor:
        """These bytes of it, as a tensor that keeps the lease."""
        ...


class BatchRegion(Protocol):
    """The bytes of one batch in the parent. Any thread; keeps the lease, as everything built from it does."""

    @property
    def memory(self) -> HostMemory | None:
        """The slot, for a device; None for a copy of it."""
        ...

    def tensor(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous, writable tensor over the region; for batches whose layout the parent knows."""

    def load(self, root_offset: int, root_bytes: int) -> Any:
        """The batch that the worker wrote."""

    def root(self, root_offset: int, root_bytes: int) -> bytes:
        """What describes that batch. Equal roots, equal tables (``flat_table``)."""


class SlotReader(Protocol):
    """Parent side. Every method is called by the pool, from one thread at a time."""

    released: deque[SlotRef]
    """Slots whose lease ended, appended on any thread, inside garbage collection too. The pool drains it."""

    def prepare(self, index: int) -> None:
        """Make a slot exist. Called before it is first named to a worker, unless ``put`` is called for it."""

    def put(self, index: int, payload: bytes | memoryview) -> None:
        """Write a task payload to a free slot. Called before the ticket is dispatched."""

    def lease(self, ref: SlotRef, nbytes: int) -> BatchRegion:
        """Map a written batch. Called once per receipt; the slot is busy until ``ref`` appears in ``released``."""

    def copy_out(self, ref: SlotRef, nbytes: int) -> BatchRegion:
        """Copy a written batch instead of leasing it: the slot is free when this returns."""

    def trim(self, index: int) -> None:
        """Return the memory of a free slot to the system. Called at any time."""

    def close(self) -> None:
        """Close the memory, once no worker writes any more. Live leases stay valid."""


class BatchWriter(Protocol):
    """Worker side, one slot. One thread, between ``open`` and ``held``."""

    def peek(self, nbytes: int) -> bytes:
        """Return the task that the parent put into the slot. Called first."""

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return memory of the slot that ``write`` need not copy. Called while fetching and collating."""

    def tensor_at(self, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return memory at a fixed place, for rows of one batch that several workers make."""

    def write(self, obj: object) -> WrittenBatch:
        """Write the finished batch. The slot belongs to the parent as soon as the receipt is sent."""

    def append(self, data: bytes) -> None:
        """Write bytes behind the written batch, for a relay (``executors/ray``) that reads them there."""

    def held(self) -> bool:
        """Whether user code kept memory of the batch, which forbids reuse. Called after the worker dropped it."""


class SlotSource(Protocol):
    """Worker side, all slots. One thread."""

    def open(self, index: int) -> BatchWriter:
        """Return the writer of a slot, for one ticket. The result of an earlier ``open`` of this slot is void."""

    def close(self) -> None:
        """Unmap every slot that no tensor uses any more; a later ``open`` maps it again."""
