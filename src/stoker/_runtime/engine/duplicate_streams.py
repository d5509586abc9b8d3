"""Warns when every worker of an IterableDataset reads the whole stream, so that each sample is delivered several times.

The batches stay as torch delivers them. Some bytes of each worker's first batches are compared. At the end of the loader's first
whole epoch a warning is logged, if these batches are equal in all workers. Batches that random augmentation changed are not
recognised. A stream whose first batches are all equal is not judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import torch

from stoker._runtime.pool.loader_stats import LoaderStats

_BATCHES = 2
"""Batches that are compared, of each worker."""
_LEAVES = 64
_BYTES = 4096
"""Bytes that are compared, from the beginning of each tensor."""
_JUDGED = "stream judged"


class DuplicateStreams:
    """Compares the first batches of one epoch. On the thread that iterates."""

    def __init__(self, stats: LoaderStats, workers: int) -> None:
        self._stats = stats
        self._workers = workers
        self._seen: dict[int, list[bytes]] = {}
        self._batches = 0

    @staticmethod
    def of(stats: LoaderStats, workers: int, *, streams: bool) -> DuplicateStreams | None:
        """None if there is nothing to compare, or if this loader's stream was judged before."""
        return (
            DuplicateStreams(stats, workers)
            if streams and workers > 1 and _JUDGED not in stats.warned
            else None
        )

    def note(self, worker: int, batch: Any) -> None:
        """A batch of this worker is handed over."""
        self._batches += 1
        seen = self._seen.setdefault(worker, [])
        if len(seen) < _BATCHES:
            seen.append(content_hash(batch))

    def ended(self) -> None:
        """The epoch is over: warn if all workers delivered the same batches."""
        self._stats.warned.add(_JUDGED)
        first, *others = self._seen.values() or ([],)
        if (
            len(self._seen) < self._workers
            or len(set(first)) < _BATCHES
            or any(each != first for each in others)
        ):
            return
        self._stats.warn(
            f"every worker reads the whole stream: the first {_BATCHES} batches of all {self._workers} workers are the same "
            f"in every byte compared, so each sample appears {self._workers} times in these {self._batches} batches. Split the "
            "stream in __iter__: info = torch.utils.data.get_worker_info(), then "
            "itertools.islice(items, info.id, None, info.num_workers) (STK502: stoker explain STK502)"
        )


def content_hash(batch: Any) -> bytes:
    """16 bytes that depend on the first bytes of each tensor in a batch."""
    state = blake2b(digest_size=16)
    with contextlib.suppress(Exception):  # raised by the user's own classes: compare the bytes read so far
        for _, leaf in zip(range(_LEAVES), _leaves(batch), strict=False):
            state.update(leaf)
    return state.digest()


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        if value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized:
            count = max(1, _BYTES // value.element_size())
            yield value.detach().reshape(-1)[:count].contiguous().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(key)
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | bytes | int | float | None):
        yield repr(value)[:_BYTES].encode()
    else:
        yield type(value).__qualname__.encode()
