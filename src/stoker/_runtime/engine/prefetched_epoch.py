"""An epoch that was opened before anybody asked for it: whether it is still the one that is wanted, and what if not."""

from __future__ import annotations

from typing import Any

from stoker._runtime.checkpoint import sampler_position
from stoker._runtime.checkpoint.loader_state import LoaderState
from stoker._runtime.dataset_sync.snapshot import Snapshot
from stoker._runtime.engine.iterator import StokerIter


class PrefetchedEpoch:
    """Owner: a loader; used on the thread that iterates."""

    def __init__(self, iterator: StokerIter, dataset: object) -> None:
        self.iterator = iterator
        self._seen = Snapshot(dataset)

    def wanted(self, loader: Any) -> bool:
        """Whether nothing that matters to the epoch has changed since it was opened."""
        if loader._place().pending or not loader.prefetch_epochs or not self.iterator.can_go_on:
            return False
        if sampler_position.epoch_of(loader._index_sampler) != self.iterator.opening.source.epoch:
            loader._own_stats().warn_once(
                "set_epoch",
                "set_epoch() came after the epoch had been opened ahead (prefetch_epochs): its first batches are made again. Call "
                "it before the last batches of the epoch before, or use stoker.ElasticDistributedSampler, which counts itself",
            )
            return False
        return not self._seen.changes()

    def settle(self, loader: Any) -> None:
        """It is the epoch that begins now: if ``set_epoch`` asked for it, it is not to be begun once more."""
        elastic = sampler_position.elastic_part(loader._index_sampler)
        if elastic is not None:
            elastic.__stoker_settle__()

    def take_back(self, loader: Any, bookmark: LoaderState) -> None:
        """It is not wanted as it is. The epoch that begins now draws the same seed and order, from samplers opened anew."""
        epoch = self.iterator.opening.source.epoch
        elastic = sampler_position.elastic_part(loader._index_sampler)
        if elastic is not None and epoch is not None and elastic.epoch == epoch:
            elastic.set_epoch(epoch)  # it counts what is opened, and this one counts as not opened
        self.iterator.withdraw()
        bookmark.take_back()
