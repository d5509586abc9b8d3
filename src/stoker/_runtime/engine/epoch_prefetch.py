"""Runs epochs without a gap between them (``prefetch_epochs``).

    epoch 1's tickets all planned ──► epoch 2 is opened, its first tickets follow in the same line ──► epoch 1's last batch is taken
                                                                                                       │ StopIteration: parked
                                      iter(loader) gets an iterator that goes on with what is made ◄───┘

Tickets carry their own seed and position, so workers and scheduler need not know. At most one epoch is opened ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker._runtime.checkpoint import sampler_position
from stoker._runtime.checkpoint.loader_state import LoaderState
from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.dataset_sync.snapshot import Snapshot
from stoker._runtime.engine.iteration import Iteration
from stoker._runtime.plan.planner import Planner
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.pool import Pool
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import Policy

if TYPE_CHECKING:
    from stoker._runtime.engine.iterator import StokerIter


@dataclass(slots=True)
class OpenedEpoch:
    """An epoch with its planner. ``ended``: all its tickets are planned."""

    planner: Planner
    progress: Progress
    ended: bool = False


class EpochPrefetch(Iteration):
    """An iteration over several epochs. Each iterator passes it on to the next one, and uses it during its own epoch only.

    ``follow`` opens the next epoch. It returns None if that epoch cannot begin before ``iter()`` is called.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        stats: LoaderStats,
        progress: Progress,
        *,
        follow: Callable[[EpochPrefetch], OpenedEpoch | None],
        **settings: Any,
    ) -> None:
        self.parked = False
        """Whether an epoch is over, and the next one is opened but not yet asked for."""
        self.planned = 0
        """Tickets planned in all epochs, which is the number of the next ticket."""
        self._follow = follow
        self._ahead: OpenedEpoch | None = None
        self._forgotten = False
        self._aside: deque[m.Deliver] = deque()
        self._border = 0
        super().__init__(pool, policy, stats, progress, **settings)

    def start(self, planner: Planner) -> None:
        self._current = OpenedEpoch(planner, self._progress)
        super().start(planner)

    def go_on(self) -> None:
        """The next epoch begins: ``iter(loader)`` was called."""
        assert self._ahead is not None
        self.parked = False
        self._current, self._ahead = self._ahead, None
        self._planner = self._current.planner
        self._progress = self._current.progress
        self._pool.opener.begin(self._stats, self._progress)
        self._border = self.planned
        if self.observer is not None:
            self.observer.next_epoch()
        self._ready.extendleft(reversed(self._aside))
        self._aside.clear()
        self._fill()

    def forget_ahead(self) -> None:
        """Drop the epoch that was opened ahead. The current one goes on to its end."""
        self._ahead = None
        self._forgotten = True
        if self.parked:
            self.close()

    def close(self) -> None:
        self.parked = False
        self._aside.clear()
        super().close()

    def _plan(self) -> m.Planned | m.PlanEnded | None:
        epoch = self._ahead or self._current
        if self._forgotten:
            return None
        if not epoch.ended:
            planned = epoch.planner.plan()
            if planned.__class__ is m.Planned:
                self.planned += 1
                return planned
            epoch.ended = True
        if epoch is self._ahead:
            return None  # at most one epoch is opened ahead
        self._border = self.planned
        self._ahead = self._follow(self) if epoch.planner.error is None else None
        return m.PlanEnded() if self._ahead is None else self._plan()

    def _next(self) -> Any:
        if self._over():
            if self._forgotten:
                self.close()
            else:
                self.parked = True
            raise StopIteration
        if not self._guard.held:
            self._set_aside()
        return super()._next()

    def _advance(self) -> None:
        super()._advance()
        self._set_aside()
        while not self._ready:
            super()._advance()
            self._set_aside()

    def _over(self) -> bool:
        """Whether all batches of this epoch are taken: the open tickets all belong to the next epoch."""
        if self._closed or not self._current.ended or (self._ahead is None and not self._forgotten):
            return False
        return self._scheduler.open_tickets == self.planned - self._border

    def _set_aside(self) -> None:
        """Put batches of the next epoch aside. With ``in_order=False`` they may be ready before the last of this epoch."""
        if self._scheduler.policy.in_order or not self._current.ended:
            return
        ready = self._ready
        with self._guard:
            while ready and ready[0].ticket.seq >= self._border:
                self._aside.append(ready.popleft())


class PrefetchedEpoch:
    """An epoch that was opened before ``iter(loader)``. Kept by the loader, used on the thread that iterates."""

    def __init__(self, iterator: StokerIter, dataset: object) -> None:
        self.iterator = iterator
        self._seen = Snapshot(dataset)

    def wanted(self, loader: Any) -> bool:
        """Whether sampler, dataset and arguments are as they were when the epoch was opened."""
        if loader._place().pending or not loader.prefetch_epochs or not self.iterator.can_go_on:
            return False
        if sampler_position.epoch_of(loader._index_sampler) != self.iterator.epoch_start.source.epoch:
            loader._own_stats().warn_once(
                "set_epoch",
                "set_epoch() came after the epoch had been opened ahead (prefetch_epochs): its first batches are made again. Call "
                "it before the last batches of the epoch before, or use stoker.ElasticDistributedSampler, which counts itself",
            )
            return False
        return not self._seen.changes()

    def settle(self, loader: Any) -> None:
        """This epoch begins now. A ``set_epoch`` call that asked for it is fulfilled."""
        elastic = sampler_position.elastic_part(loader._index_sampler)
        if elastic is not None:
            elastic.__stoker_settle__()

    def take_back(self, loader: Any, state: LoaderState) -> None:
        """Drop this epoch. The one that begins instead draws the same seed and order from new sampler iterators."""
        epoch = self.iterator.epoch_start.source.epoch
        elastic = sampler_position.elastic_part(loader._index_sampler)
        if elastic is not None and epoch is not None and elastic.epoch == epoch:
            elastic.set_epoch(epoch)  # the sampler counted this epoch when it was opened
        self.iterator.withdraw()
        state.take_back()
