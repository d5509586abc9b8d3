"""Shares a page of memory between a probe and the doctor: the current index, and the stacks that the probe leaves."""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

_WORDS = struct.Struct("<QqQ")
_BYTES = mmap.PAGESIZE


class SampleProgress(NamedTuple):
    """How many samples were begun, and the index of the last; None when it was no number, or there was none."""

    samples: int
    at: int | None


def make() -> int:
    """A descriptor of an empty page. It has no name, and goes with its last user."""
    fd = os.memfd_create("stoker-doctor", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class ProgressPage:
    """One side's view of it. Workers that a probe forks write to the same."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BYTES)

    def touch(self, index: object) -> None:
        """Say which index is worked on from now on."""
        count = _WORDS.unpack_from(self._map)[0]
        known = isinstance(index, int) and -(1 << 63) <= index < 1 << 63
        _WORDS.pack_into(self._map, 0, count + 1, index if known else 0, known)

    def read(self) -> SampleProgress:
        """Read the last progress."""
        count, index, known = _WORDS.unpack_from(self._map)
        return SampleProgress(count, index if known else None)

    def clear(self) -> None:
        """Before the next probe."""
        _WORDS.pack_into(self._map, 0, 0, 0, 0)

    def close(self) -> None:
        """Give the mapping back."""
        self._map.close()
