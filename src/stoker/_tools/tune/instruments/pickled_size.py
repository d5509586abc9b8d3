"""The size of the pickled dataset for a spawned worker, and the time of pickling it, without making a copy."""

from __future__ import annotations

import pickle
import time
from typing import Any, NamedTuple

_MOST_BYTES = 256 << 20
_MOST_S = 1.0


class PickledSize(NamedTuple):
    """The size and time; lower bounds if counting was stopped."""

    bytes: int
    ns: int


class _SizeReached(Exception):
    pass


class _ByteCounter:
    """A file that counts bytes and keeps nothing."""

    def __init__(self, until: float) -> None:
        self.bytes = 0
        self._until = until

    def write(self, part: Any) -> int:
        self.bytes += len(part)
        if self.bytes > _MOST_BYTES or time.monotonic() > self._until:
            raise _SizeReached
        return len(part)


class _Pickler(pickle.Pickler):
    """Tensors are not pickled: their bytes are counted, and the time for copying them is estimated."""

    held_bytes = 0

    def reducer_override(self, item: Any) -> Any:
        import torch

        if isinstance(item, torch.Tensor):
            self.held_bytes += item.nbytes
            return int, ()
        return NotImplemented


def pickled_size(dataset: Any, copy_bytes_per_s: float | None) -> PickledSize | None:
    """The size; None if the dataset cannot be pickled. It takes about a second at most, plus the user's own ``__getstate__``."""
    counter = _ByteCounter(time.monotonic() + _MOST_S)
    buffers_bytes = 0

    def count(buffer: pickle.PickleBuffer) -> None:
        nonlocal buffers_bytes
        with buffer.raw() as view:
            buffers_bytes += view.nbytes

    began_ns = time.perf_counter_ns()
    pickler = _Pickler(counter, protocol=5, buffer_callback=count)
    try:
        pickler.dump(dataset)
    except _SizeReached:
        pass
    except Exception:
        return None
    held_bytes = pickler.held_bytes + buffers_bytes
    copied_ns = int(held_bytes / copy_bytes_per_s * 1e9) if copy_bytes_per_s else 0
    return PickledSize(counter.bytes + held_bytes, time.perf_counter_ns() - began_ns + copied_ns)
