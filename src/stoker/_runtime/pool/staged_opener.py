"""Opens batches through a stager: some of them before they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stoker._runtime.device.stager import FencedSources, Source, StagedBatch, Stager
from stoker._runtime.pool.batch_opener import NOTHING, BatchOpener, OpenedAhead
from stoker._runtime.scheduler import messages as m

_IN_FLIGHT = 4
"""Copies that may be under way, besides those of batches that are ahead."""


class StagedOpener:
    """Takes the place of a pool's opener for one iteration that has a stager. On the thread that iterates.

    A batch that was staged ahead is not taken yet: the scheduler still counts it, and its reports are read when it is.
    """

    def __init__(self, opener: BatchOpener, stager: Stager, sources: FencedSources) -> None:
        self._opener = opener
        self._stager = stager
        self._sources = sources
        self._staged: dict[int, _Ahead] = {}
        self._most = stager.ahead + _IN_FLIGHT

    @property
    def misfit(self) -> bool:
        """Whether the parts of a split ticket did not fit together."""
        return self._opener.misfit

    @property
    def ahead(self) -> int:
        """How many batches to stage before they are asked for."""
        return self._stager.ahead

    def drop_done(self) -> None:
        """Let go of sources that no copy reads any more."""
        self._sources.drop_done()

    @property
    def copying(self) -> bool:
        """Whether more copies are under way than those of batches that are ahead: copies are late."""
        return len(self._sources) > self._stager.ahead + 1

    def hold_back(self, *, ready: bool) -> None:
        """Wait if the loop is several batches ahead of the copies, or of the device. ``ready``: the next batch is there.

        Otherwise slots and device memory would grow without bound. An interrupt here loses nothing.
        """
        if len(self._sources) > self._most:
            self._sources.wait_until(self._most)
        self._stager.hold_back(ready=ready)

    def stage(self, delivers: Iterable[m.Deliver]) -> None:
        """Begin the copies of these batches, unless that was done. Errors are raised when the batch is asked for."""
        for deliver in delivers:
            if deliver.ticket.seq not in self._staged:
                self._begin(deliver)

    def ready(self, deliver: m.Deliver) -> None:
        """Wait for another thread's part of the work on this batch, if there is any. An interrupt here loses nothing."""
        ahead = self._staged.get(deliver.ticket.seq)
        if ahead is not None and ahead.staged is not None:
            ahead.staged.ready()

    def open(self, deliver: m.Deliver) -> Any:
        """The batch of a delivered ticket. Raises the exception of its worker, or of its copy."""
        ahead = self._staged.pop(deliver.ticket.seq, None) or self._begin(deliver)
        self._staged.pop(deliver.ticket.seq, None)
        if ahead is None:
            batch = self._opener.open(deliver)
            if batch is NOTHING:
                return NOTHING
            return self._sources.stage(self._stager, Source(batch)).take(self._sources)
        if ahead.error is not None:
            raise ahead.error
        if ahead.opened is not None and not self._opener.settle(ahead.opened):
            return NOTHING
        assert ahead.staged is not None
        return ahead.staged.take(self._sources)

    def close(self) -> None:
        """The iteration is over. Copies that have begun go on, and keep their slots."""
        self._staged.clear()
        self._opener.forget_ahead()
        self._stager.close()

    def leave(self) -> None:
        """The loader was closed: drop what is ahead and end the stager's thread, if it has one. Any thread; idempotent."""
        self._staged.clear()
        self._stager.close()

    def _begin(self, deliver: m.Deliver) -> _Ahead | None:
        ahead = _Ahead()
        try:
            ahead.opened = self._opener.open_ahead(deliver)
            if ahead.opened is None:
                return None
            # Known from here on: after an interrupt the batch must not be opened a second time.
            self._staged[deliver.ticket.seq] = ahead
            ahead.staged = self._sources.stage(self._stager, ahead.opened.source)
            # The slot is free when its copy is done, whether the batch was taken or not.
            _, envelope, worker = ahead.opened
            ahead.opened = OpenedAhead(_GONE, envelope, worker)
        except Exception as error:
            self._staged[deliver.ticket.seq] = ahead
            ahead.error = error
        return ahead


_GONE = Source(None)


class _Ahead:
    """A batch that was opened and staged, or the error of that."""

    __slots__ = ("error", "opened", "staged")

    def __init__(self) -> None:
        self.opened: OpenedAhead | None = None
        self.staged: StagedBatch | None = None
        self.error: Exception | None = None
