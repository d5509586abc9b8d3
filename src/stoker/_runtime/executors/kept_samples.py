"""Finds datasets whose ``__getitem__`` fills one memory again for a later sample, for workers that are threads.

    first samples of a pool ──► made in turn, and held ──► a later sample has the memory of an earlier one, which changed?
        no   ──► threads fetch at the same time, and nothing is watched any more
        yes  ──► a warning; each batch is fetched, collated and copied on one thread at a time

Processes need none of this: each has a dataset of its own, and its batches are copied on their way.

Memory that is filled and copied inside ``__getitem__`` never comes out, so nothing here can see it. ``stoker tune`` compares
batches, and finds that.
"""

from __future__ import annotations

import threading
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from stoker._runtime.executors.kept_memory import HeldMemory, KeptMemory
from stoker._runtime.executors.turn import Turn
from stoker._runtime.protocol.thread_context import SlotMemory
from stoker._runtime.protocol.worker_spec import BatchOrder, WorkerSpec
from stoker._runtime.worker.batch_maker import BatchMaker
from stoker._runtime.worker.fetch import Fetcher, fetcher_for

_WATCHED_SAMPLES = 4
"""Buffers that a dataset fills in turn are found if there are fewer."""
_PATIENCE_S = 1.0
"""A thread waits so long for the first samples of another. One that hangs must not hold up all threads."""
_MOST_LEAVES = 64
_MOST_BYTES = 1 << 20
_MOST_HELD_BYTES = 256 << 20
"""Of larger samples, the first one alone is held."""
_DEPTH = 6

_Leaf = torch.Tensor | np.ndarray[Any, Any]


class KeptSamples:
    """Watches the first samples of one pool. All of its worker threads call it."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._lock = threading.Lock()
        self._left = _WATCHED_SAMPLES
        self._held: list[tuple[_Leaf, int, int]] = []
        """Tensors and arrays of the first samples: each with the address of its memory, and a checksum of what was there."""
        self._held_bytes = 0
        self._found = False
        self._in_turn = True
        """Whether no two threads made samples at the same time so far."""

    @property
    def watches(self) -> bool:
        """Whether samples are held, to see whether their memory comes back."""
        return self._left > 0

    @property
    def found(self) -> bool:
        """Whether memory of a sample was filled again: a batch is then made while no other thread makes one."""
        return self._found

    def stop(self) -> None:
        """Do nothing: samples are not fetched through it."""
        self._left = 0

    def fetch(self, fetch: Callable[[Any], Any], wanted: Any) -> Any:
        """Do ``fetch(wanted)``: one index, or those of a whole batch. The caller gives the turn back when the batch is made."""
        self._wait()
        fetched = fetch(wanted)
        if self._left:
            self._look(fetched)
        return fetched

    def _wait(self) -> None:
        if self._found:
            self._turn.take()
        elif self._left and self._in_turn:
            if not self._turn.take(_PATIENCE_S):
                self._in_turn = False
            elif not self._left and not self._found:  # found out meanwhile: there is nothing to wait for
                self._turn.leave()

    def _look(self, fetched: Any) -> None:
        found = HeldMemory()
        found.search([fetched], _DEPTH)
        leaves: list[_Leaf] = [*found.tensors.values(), *found.arrays.values()]
        with self._lock:
            if not self._left:
                return
            if self._came_back(leaves[:_MOST_LEAVES]):
                self._found = True
                self._left = 1
            self._left -= 1
            if self._left:
                return
            self._held.clear()
        if self._found:
            self._warn()
        else:
            self._turn.leave()

    def _came_back(self, leaves: list[_Leaf]) -> bool:
        """Whether one of them lies where an earlier sample lay, which is no more what it was. Keeps them for later."""
        starts = {_address(each) for each in leaves}
        if any(start in starts and _content(each) != content for each, start, content in self._held):
            return True
        some_bytes = sum(each.nbytes for each in leaves)
        if not self._held or self._held_bytes + some_bytes <= _MOST_HELD_BYTES:
            self._held_bytes += some_bytes
            self._held += [(each, _address(each), _content(each)) for each in leaves]
        return False

    def _warn(self) -> None:
        doubt = "" if self._in_turn else " The first batches may be wrong."
        warnings.warn(
            "The dataset's __getitem__ returns memory that it fills again for a later sample, and with executor='thread' all "
            "threads share it. From now on, one thread at a time makes a batch, and its memory is copied."
            f"{doubt} Return new tensors from memory that each thread has for itself (threading.local), or use "
            "executor='process'",
            stacklevel=2,
        )


class WatchedFetcher(Fetcher):
    """Fetches samples through ``KeptSamples``, until it has found nothing."""

    def __init__(self, dataset: Any, kept_samples: KeptSamples) -> None:
        super().__init__(dataset)
        self._kept_samples = kept_samples

    def bind(self) -> Callable[[Any], Any]:
        fetch = super().bind()
        samples = self._kept_samples
        # ``found`` comes second: it may become true while a batch that began without the turn is here.
        return partial(samples.fetch, fetch) if samples.watches or samples.found else fetch

    def bind_batched(self) -> Callable[[Any], Any] | None:
        fetch = super().bind_batched()
        return None if fetch is None else partial(self._kept_samples.fetch, fetch)


class OwnBatchMaker(BatchMaker):
    """Makes batches in memory that nobody else holds. Used by one worker thread.

    ``kept_memory`` stands for the ``collate_fn`` of the spec; None where that one copies every sample. The threads of a pool share
    it, ``kept_samples`` and ``turn``.
    """

    def __init__(
        self, turn: Turn, kept_samples: KeptSamples, kept_memory: KeptMemory | None, spec: WorkerSpec, worker: int, **options: Any
    ) -> None:  # fmt: skip
        fetcher = fetcher_for(spec)
        if type(fetcher) is Fetcher and not spec.iterable:
            fetcher = WatchedFetcher(spec.dataset, kept_samples)
        else:  # samples of a stream have no index, and those of a sample cache lie in its store
            kept_samples.stop()
        super().__init__(spec, worker, fetcher=fetcher, **options)
        self._turn = turn
        self._kept_samples = kept_samples
        self._kept_memory = kept_memory

    def _make(self, order: BatchOrder, slot: SlotMemory | None) -> Any:
        samples, memory = self._kept_samples, self._kept_memory
        try:
            if samples.found:
                self._turn.take()
            if memory is None:
                return super()._make(order, slot)
            box = [super()._make(order, slot)]
            if samples.watches:
                memory.copy_all(box)
            elif samples.found or memory.settles:
                memory.settle(box, warns=not samples.found)
            return box[0]
        finally:
            self._turn.leave()


def _address(leaf: _Leaf) -> int:
    return leaf.data_ptr() if isinstance(leaf, torch.Tensor) else int(leaf.ctypes.data)


def _content(leaf: _Leaf) -> int:
    """A checksum of its first megabyte."""
    value: Any = leaf
    while value.ndim and value.nbytes > _MOST_BYTES:
        value = value[: max(1, len(value) * _MOST_BYTES // value.nbytes)] if len(value) > 1 else value[0]
    if isinstance(value, torch.Tensor):
        try:
            value = (
                value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
            )
        except (RuntimeError, TypeError):  # a dtype without plain bytes
            return 0
    return zlib.crc32(value.tobytes())
