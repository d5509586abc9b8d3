"""Page-locked copies of batches, for ``pin_memory=True``: one copy per batch, on the staging thread.

The memory is torch's own, whose allocator knows about copies that are still in flight. So a batch may be copied on any stream
and dropped at once (docs/adr/0017-the-way-to-the-device.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from stoker._runtime.device.accelerator import current_device_index
from stoker._runtime.device.device_batch import found, rebuilt
from stoker._runtime.device.packing import PackedTensors, in_slot
from stoker._runtime.device.stager import FencedSources, Source
from stoker._runtime.device.staging_thread import StagingJob, StagingThread


class PinningStager:
    """Copies each batch into pinned memory. Custom ``pin_memory`` methods are called. One per iteration.

    Batches over a slot are copied as one range of bytes; torch pins all others as it does.
    """

    ahead = 1
    to_device = False

    def __init__(self, device: str | None, *, worker_thread: bool) -> None:
        self._device = device
        self._thread = StagingThread(_device_index()) if worker_thread else None

    def stage(self, source: Source) -> StagingJob:
        """Have the batch copied."""

        def work() -> tuple[Callable[[FencedSources], Any], None]:
            batch = self._pinned(source)
            return lambda sources: batch, None

        job = StagingJob(work)
        if self._thread is None:
            job.run()
        else:
            self._thread.do(job)
        return job

    def hold_back(self, *, ready: bool) -> None:
        """What the user does with pinned batches is not known here."""

    def close(self) -> None:
        """End the thread, if there is one."""
        if self._thread is not None:
            self._thread.close()

    def _pinned(self, source: Source) -> Any:
        batch, memory, table = source
        if memory is not None and table is not None:
            return table.batch_over(memory.bytes_at(table.start, table.start + table.nbytes).pin_memory())
        if memory is not None:
            placed = in_slot(found(batch, "pin_memory").tensors, memory)
            if placed is not None and placed.nbytes:
                slot = memory.bytes_at(placed.start, placed.start + placed.nbytes)
                return self._rebuilt(batch, placed, slot.pin_memory())
        return pin_memory(batch, self._device)  # type: ignore[no-untyped-call]

    def _rebuilt(self, batch: Any, placed: PackedTensors, pinned: torch.Tensor) -> Any:
        views = placed.views(pinned)
        return rebuilt(batch, lambda each: views[id(each)], lambda each: each.pin_memory(), "pin_memory")


def _device_index() -> int | None:
    try:
        return current_device_index()
    except RuntimeError:
        return None
