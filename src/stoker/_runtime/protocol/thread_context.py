"""Holds what a thread is making batches for: the slot to collate into, and the generators of the sample.

The workers set it. torch's collation, ``stoker.generator()`` and sample caches, which stand below them, read it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from stoker._runtime.worker.rng.per_sample import SampleRng


class SlotMemory(Protocol):
    """Where collated tensors may be built; the transport's SlotWriter."""

    def tensor(self, shape: Any, dtype: torch.dtype) -> torch.Tensor: ...


class _PerThread(threading.local):
    slot: SlotMemory | None = None
    info: Any = None
    sample_rng: SampleRng | None = None


current = _PerThread()
"""``current.slot`` is the memory for the batch that this thread collates; None for the heap.

``current.info`` is what ``get_worker_info()`` returns on a worker thread. ``current.sample_rng`` gives generators for the sample
that this thread makes; None outside of any sample.
"""
