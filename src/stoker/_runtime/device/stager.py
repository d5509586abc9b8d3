"""The stage between opening a batch and handing it over.

    worker's slot ─► BatchOpener ─► Source ─► Stager.stage ─► StagedBatch ─► take() ─► user
                                      │                            │
                                      └────── FencedSources ◄──────┘ fence
                                                    │ fence done
                                                    └──► the source dies ─► its lease ends ─► its slot is free

A stager may start a copy that goes on after it returned. The host batch has to live until that copy is done: its slot is leased
for as long as the batch lives, and would otherwise be written again. A fence says when the copy is done.

A batch may be staged before it is asked for. ``take`` is called when it is handed over, on the thread that iterates.

Loaders without ``device`` and ``pin_memory`` have no stager, and do none of this.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from stoker._runtime.transport.base import HostMemory
from stoker._runtime.transport.flat_table import FlatTable


class Fence(Protocol):
    """One copy that may still read host memory. Called on the thread that iterates, or on the one that closes the pool.

    Neither method raises: a device that is lost reads nothing any more, so its fences are done.
    """

    def done(self) -> bool:
        """Whether the memory may be used again. It never waits."""
        ...

    def wait(self) -> None:
        """Return when it may. Called only when the pool closes, because its memory goes away."""
        ...


class Source(NamedTuple):
    """A host batch. ``memory`` is the slot that its tensors lie in; None if they lie anywhere.

    With ``table``, which comes with ``memory``, the batch was not opened, and ``batch`` is None: the table says what it is.
    A stager that does not read tables calls ``opened``.
    """

    batch: Any
    memory: HostMemory | None = None
    table: FlatTable | None = None

    def opened(self) -> Any:
        """The batch in host memory. Its tensors keep the slot."""
        if self.table is None or self.memory is None:
            return self.batch
        start = self.table.start
        return self.table.batch_over(self.memory.bytes_at(start, start + self.table.nbytes))


class StagedBatch(Protocol):
    """A batch whose copy has begun, or will begin by itself. On the thread that iterates."""

    @property
    def fence(self) -> Fence | None:
        """Says when nothing reads the source any more; None if nothing does."""
        ...

    def ready(self) -> None:
        """Wait until ``take`` need not wait for another thread. It never waits for a device. An interrupt here loses nothing."""
        ...

    def take(self, sources: FencedSources) -> Any:
        """The batch for the user. Called once. Raises the error of the copy, which costs this batch only.

        If something begins to read the source only now, it is kept in ``sources``.
        """
        ...


class Stager(Protocol):
    """Turns host batches into the batches that users get. One per iteration, on the thread that iterates."""

    @property
    def ahead(self) -> int:
        """How many batches to stage before they are asked for."""
        ...

    @property
    def to_device(self) -> bool:
        """Whether batches are copied to a device."""
        ...

    def stage(self, source: Source) -> StagedBatch:
        """Copy the batch, or begin to. If it raises an Exception, nothing reads the source."""
        ...

    def hold_back(self, *, ready: bool) -> None:
        """Wait while the device is too many batches behind. Called before each batch; an interrupt here loses nothing.

        ``ready`` says whether that batch is there.
        """
        ...

    def close(self) -> None:
        """The iteration is over. Copies that have begun go on. Idempotent; any thread."""
        ...


class FencedSources:
    """Keeps sources until their fences are done. It belongs to an arena, because copies may outlive the iterator and its pool.

    Used on the thread that iterates; ``close`` on any.
    """

    def __init__(self) -> None:
        self._fenced: deque[tuple[Fence, Any]] = deque()
        self._unfenced: list[Any] = []
        self._closed = False
        self._staging = threading.RLock()
        """Held while a copy begins: memory must not go away before its fence is known."""

    def __len__(self) -> int:
        return len(self._fenced) + len(self._unfenced)

    @property
    def lost(self) -> bool:
        """Whether an interrupt left a source without a fence. It is kept until ``close``."""
        return bool(self._unfenced)

    def stage(self, stager: Stager, source: Source) -> StagedBatch:
        """The staged batch. The source is kept until its fence is done.

        An interrupt may come after a copy began and before its fence is known. Then the source is kept until ``close``.
        Raises ValueError if another thread closed the loader meanwhile.
        """
        with self._staging:
            if self._closed:
                raise ValueError("the memory of these batches is closed")
            self._unfenced.append(source)
            try:
                staged = stager.stage(source)
                self.keep(staged.fence, source)
            except Exception:
                self._settled()
                raise
            self._settled()
            return staged

    def _settled(self) -> None:
        del self._unfenced[-1:]  # none, if a signal handler closed the loader

    def keep(self, fence: Fence | None, source: Any) -> None:
        """Keep the source until this fence is done, too."""
        if fence is not None:
            self._fenced.append((fence, source))
            if self._closed:
                self.close()

    def drop_done(self) -> None:
        """Drop sources, oldest first, up to one that is still read. Copies of one stream are done in their order."""
        fenced = self._fenced
        with suppress(IndexError):  # another thread closes the pool
            while fenced and fenced[0][0].done():
                fenced.popleft()

    def wait_until(self, most: int) -> None:
        """Wait until so many sources are left, at most. Oldest first; an interrupt here loses nothing."""
        fenced = self._fenced
        with suppress(IndexError):  # another thread closes the pool
            while len(fenced) > most:
                fenced[0][0].wait()
                fenced.popleft()

    def close(self) -> None:
        """Wait for all fences, then drop everything: the arena's memory goes away next. Idempotent."""
        with self._staging:
            self._closed = True
        for fence, _ in list(self._fenced):
            fence.wait()
        self._fenced.clear()
        self._unfenced.clear()
