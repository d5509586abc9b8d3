"""Decides when a batch maker seeds, and from which key: before a range, a row, or a batch of a stream."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from stoker._runtime.protocol.worker_spec import BatchOrder, GeneratorPath, WorkerSpec
from stoker._runtime.worker.rng.dataset_generators import AS_GLOBAL, DatasetGenerators, find
from stoker._runtime.worker.rng.seeding import (
    batch_key,
    range_key,
    sample_key,
    seed_all,
    seed_opencv,
)

_ROWS = 1 << 16
"""Added to row numbers, so that they differ from range numbers."""


class Seeder:
    """Seeds the global generators and those stored on the dataset. Owner: a batch maker; called on its thread.

    ``shared`` says that other threads draw from the generators; only OpenCV's belongs to each thread. ``rng="torch"`` seeds
    none. ``draws`` is false where no code can draw.
    """

    def __init__(self, spec: WorkerSpec, worker: int, *, shared: bool = False, draws: bool = True) -> None:
        self._spec = spec
        self._worker = worker
        self.draws = draws
        """Whether code could draw that makes samples."""
        self.seeds = spec.rng != "torch" and draws
        """Whether anything is seeded at all."""
        self._shared = shared
        self.by_sample = spec.rng == "sample" and self.seeds
        """Whether every row is seeded instead of every range."""
        self._torch_too = True
        self._last = 0
        self._batch: tuple[int, int] | None = None
        self._batch_key = 0
        self._stored: DatasetGenerators | None = None
        if self.seeds and not shared and spec.stored:
            self._stored = DatasetGenerators(spec.dataset, spec.stored)

    def leave_torch(self) -> None:
        """Leave torch's generator alone from now on: ``worker_init_fn`` seeded it."""
        self._torch_too = False

    def revised(self) -> None:
        """Search the dataset again: it has attributes that were not there when the parent searched."""
        if self.seeds and not self._shared and not self._spec.iterable:
            copies = {path for path, number in self._spec.stored if number == AS_GLOBAL}
            found = [
                GeneratorPath(path, AS_GLOBAL if path in copies else number)
                for path, number in find(self._spec.dataset)
            ]
            self._stored = DatasetGenerators(self._spec.dataset, found) if found else None

    def range(self, order: BatchOrder, number: int) -> None:
        """Seed for a range. By sample this does nothing: rows are seeded one by one."""
        if self.seeds and not self.by_sample:
            if self._batch != (order.epoch, order.seq):
                self._batch = (order.epoch, order.seq)
                self._batch_key = batch_key(order.seed, self._spec.rank, order.position)
            self._seed(range_key(self._batch_key, number))

    def row(self, order: BatchOrder, row: int) -> None:
        """Seed for one row, by sample."""
        self._seed(sample_key(order.seed, order.position + row * self._spec.stride))

    def whole(self, order: BatchOrder) -> None:
        """Seed for a batch that is fetched at once: as one range, or by sample with the key of its first row."""
        if self.by_sample:
            self.row(order, 0)
        else:
            self.range(order, 0)

    def rows(self, order: BatchOrder, first: int, number: int) -> None:
        """Seed for rows that threads fetch at once, from row ``first`` of range ``number`` on. They draw from one stream."""
        if self.by_sample:
            self.row(order, first)
        else:
            self.range(order, number)

    def row_on_thread(self, order: BatchOrder, row: int) -> None:
        """Seed OpenCV's generator for one row, on a fetch thread that shares all other generators."""
        if not self.seeds:
            return
        if self.by_sample:
            seed_opencv(sample_key(order.seed, order.position + row * self._spec.stride))
        else:
            seed_opencv(range_key(batch_key(order.seed, self._spec.rank, order.position), _ROWS + row))

    def pull(self, order: BatchOrder, pulled: int) -> None:
        """Seed for a batch of a stream."""
        if self.seeds:
            self._seed(range_key(batch_key(order.seed, self._spec.rank, self._worker), pulled))

    def kept(self) -> AbstractContextManager[None]:
        """Return a context for making one batch. A worker has its generators for itself: nothing is restored."""
        return _NOTHING_TO_KEEP

    def _seed(self, key: int) -> None:
        if self._shared:
            seed_opencv(key)
            return
        self._last = key
        seed_all(key, torch_too=self._torch_too)
        if self._stored is not None:
            self._stored.reseed(key)


_NOTHING_TO_KEEP = nullcontext()
