"""The memory that a relay shares with its worker: a sparse file of slots, without torch, which a relay does not import."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from stoker._pickling.segment import write_at

STRIDE = 1 << 36
"""The distance between slots, as in the trainer's arena: only pages that were touched exist."""

_MIN_STRIDE = 1 << 30
_GRAIN = 1 << 21


class LocalSlots:
    """Owner: one relay. One thread at a time."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("stoker-ray-slots", os.MFD_CLOEXEC)
        self.stride = STRIDE
        self._count = 0
        self._maps: dict[int, mmap.mmap] = {}
        while True:
            try:
                self.prepare(7)
                return
            except OSError:  # a limit on the length of files
                if self.stride <= _MIN_STRIDE:
                    raise
                self.stride >>= 1

    def prepare(self, index: int) -> None:
        """Make a slot exist."""
        if index >= self._count:
            os.ftruncate(self.fd, (index + 1) * self.stride)
            self._count = index + 1

    def put(self, index: int, payload: bytes | memoryview) -> None:
        """Write to the beginning of a slot."""
        self.prepare(index)
        write_at(self.fd, payload, index * self.stride)

    def view(self, index: int, start: int, nbytes: int) -> Any:
        """Return bytes of a slot as an array over the shared pages; valid until the slot is used again."""
        held = self._maps.get(index)
        if held is None or start + nbytes > len(held):
            length = min(-(-(start + nbytes) // _GRAIN) * _GRAIN, self.stride)
            held = self._maps[index] = mmap.mmap(
                self.fd, length, prot=mmap.PROT_READ, offset=index * self.stride
            )
        return np.frombuffer(held, np.uint8, nbytes, start)

    def close(self) -> None:
        """Close the file. Arrays over it stay valid. Idempotent."""
        self._maps.clear()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
