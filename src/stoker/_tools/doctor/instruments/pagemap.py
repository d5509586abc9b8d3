"""Tells which pages of this process are private (/proc/self/pagemap). Needs no privileges; Linux only.

After a fork all pages of the parent are shared. One that is written becomes the writer's own: it was copied. A page that is
its own and was not there at the fork was made anew.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from stoker._tools.doctor.instruments.containers import PAGE_BYTES

_PRESENT, _EXCLUSIVE = 63, 56
_PART = 4096
"""Pages that are asked for at once."""


class Pages(NamedTuple):
    """Page numbers in ascending order: those that only this process maps, and those that others map too."""

    own: Any
    shared: Any


def pages() -> Pages | None:
    """All present pages in writable private mappings, now. None where the kernel does not tell."""
    return _read(others=True)


def own_pages() -> Any:
    """Return the pages that only this process maps. For a process that ``pages`` knows; it takes little memory of its own."""
    found = _read(others=False)
    assert found is not None
    return found.own


def _read(*, others: bool) -> Pages | None:
    """By small parts: a large buffer, once freed, would take in what the process makes next, and its growth would not show."""
    try:
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    own, shared = [], []
    try:
        for first, last in _mappings():
            for at in range(first, last, _PART):
                part = os.pread(descriptor, min(_PART, last - at) * 8, at * 8)
                entries = np.frombuffer(part, dtype=np.uint64)
                present = (entries >> np.uint64(_PRESENT)).astype(bool)
                exclusive = ((entries >> np.uint64(_EXCLUSIVE)) & np.uint64(1)).astype(bool)
                own.append(np.flatnonzero(present & exclusive) + at)
                if others:
                    shared.append(np.flatnonzero(present & ~exclusive) + at)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if not own:
        return None
    return Pages(np.concatenate(own), np.concatenate(shared) if shared else np.array([], dtype=np.int64))


def _mappings() -> list[tuple[int, int]]:
    found = []
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, rights, _ = line.split(None, 2)
            if rights[1] == "w" and rights[3] == "p":
                low, high = (int(end, 16) // PAGE_BYTES for end in span.split("-"))
                found.append((low, high))
    return found


def among(some: Any, all_: Any) -> Any:
    """For each page of ``some`` whether it is in ``all_``, which is sorted. Quick when ``some`` is short."""
    if not len(all_):
        return np.zeros(len(some), dtype=bool)
    places = np.minimum(np.searchsorted(all_, some), len(all_) - 1)
    return all_[places] == some
