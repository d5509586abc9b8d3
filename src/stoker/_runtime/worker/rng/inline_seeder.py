"""Seeds where batches are made on the training thread, whose generators have to stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.worker.rng.can_draw import can_draw
from stoker._runtime.worker.rng.seeder import Seeder
from stoker._runtime.worker.rng.seeding import leave_opencv
from stoker._runtime.worker.rng.trainer_generators import TrainerGenerators


class InlineSeeder(Seeder):
    """Restores the generators after every batch: the global ones, and those on the dataset. Seeds nothing that cannot draw."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec, 0, draws=can_draw(spec))

    def kept(self) -> AbstractContextManager[None]:
        """Return a context that restores the generators when it is left. Enter it twice, as ``TrainerGenerators`` says."""
        return _Kept(self) if self.seeds else super().kept()

    def keep_stored(self) -> Callable[[], None] | None:
        """Save the generators on the dataset; return a function that restores them, or None without any."""
        return self._stored.keep() if self._stored is not None else None

    def leave(self) -> None:
        """The batch is made. OpenCV's generator, which cannot be read, gets numbers that depend on the batch alone."""
        leave_opencv(self._last)


class _Kept(TrainerGenerators):
    """The global generators and those stored on the dataset, put back when it is left."""

    __slots__ = ("_seeder", "_stored")

    def __init__(self, seeder: InlineSeeder) -> None:
        super().__init__()
        self._seeder = seeder
        self._stored: Callable[[], None] | None = None

    def _swap(self) -> None:
        self._stored = self._seeder.keep_stored()
        super()._swap()

    def _put_back(self) -> None:
        if self._saved is None:
            return
        try:
            if self._stored is not None:
                self._stored()
        finally:
            super()._put_back()
            self._seeder.leave()
