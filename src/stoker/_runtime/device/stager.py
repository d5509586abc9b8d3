"""The stage between opening a batch and handing it over.

    worker's slot ─► BatchOpener.open ─► host batch ─► Stager.stage ─► Staged(batch, fence) ─► user
                                             │                              │
                                             └─────── FencedSources ◄───────┘
                                                            │ fence done
                                                            └──► the host batch dies ─► its slot is released

A stager may start a copy that goes on after it returned. The host batch has to live until that copy is done: its slot is leased
for as long as the batch lives, and would otherwise be written again. A fence says when the copy is done.

Loaders without ``pin_memory`` have no stager, and do none of this.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, Protocol


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


class Staged(NamedTuple):
    """What a stager returns: the batch for the user, and the fence of the host batch.

    ``fence`` is None when nothing reads the host batch any more.
    """

    batch: Any
    fence: Fence | None = None


class Stager(Protocol):
    """Turns host batches into the batches that users get. One per iterator, on the thread that iterates.

    If ``stage`` raises an exception, nothing reads the host batch. The exception is raised from ``next()`` and costs this batch
    only.
    """

    def stage(self, batch: Any) -> Staged:
        """Copy the batch, or begin to."""
        ...


class FencedSources:
    """Keeps host batches until their fences are done. One per pool, because copies may outlive the iterator.

    Used on the thread that iterates; ``close`` on any.
    """

    def __init__(self) -> None:
        self._fenced: deque[tuple[Fence, Any]] = deque()
        self._unfenced: list[Any] = []

    def __len__(self) -> int:
        return len(self._fenced) + len(self._unfenced)

    def stage(self, stager: Stager, source: Any) -> Any:
        """The staged batch. The source is kept until its fence is done; others are dropped whose fences are.

        An interrupt may come after a copy began and before its fence is known. Then the source is kept until ``close``.
        """
        self._unfenced.append(source)
        try:
            batch, fence = stager.stage(source)
        except Exception:
            self._unfenced.pop()
            raise
        if fence is not None:
            self._fenced.append((fence, source))
        self._unfenced.pop()
        self.drop_done()
        return batch

    def drop_done(self) -> None:
        """Drop sources, oldest first, up to one that is still read. Copies of one stream are done in their order."""
        fenced = self._fenced
        with suppress(IndexError):  # another thread closes the pool
            while fenced and fenced[0][0].done():
                fenced.popleft()

    def close(self) -> None:
        """Wait for all fences, then drop everything: the pool unmaps its memory next. Idempotent."""
        for fence, _ in list(self._fenced):
            fence.wait()
        self._fenced.clear()
        self._unfenced.clear()
