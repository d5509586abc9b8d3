"""Reads how much memory a process occupies, from the kernel's account of its mappings (/proc/<pid>/smaps).

``pss_bytes`` is its proportional share: a page mapped by four processes counts a quarter in each. ``private_bytes`` is memory
that would not exist without it: anonymous pages that it alone maps. It is added up mapping by mapping, because the sums that the
kernel offers do not tell. ``Private_*`` in ``smaps_rollup`` includes pages of shared files that nobody else happens to have
touched, which are no copies; ``Anonymous`` includes what a forked process inherited and still shares; ``Pss_Anon`` falls when a
sibling starts and rises when one ends.

Reading takes 5 to 10 ms for a process of 150 MB with torch, most of it the kernel's walk over its pages; ``smaps_rollup`` would
take three quarters of that. The process itself is not stopped.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_MAPPING = re.compile(
    rb"\nPss: +(\d+) kB.*?\nPrivate_Clean: +(\d+) kB\nPrivate_Dirty: +(\d+) kB.*?\nAnonymous: +(\d+) kB",
    re.DOTALL,
)


class Footprint(NamedTuple):
    """What one process occupies."""

    pss_bytes: int
    private_bytes: int


def footprint(pid: int | None = None) -> Footprint | None:
    """Return the memory of a process, or of this one.

    None if the process is gone or another user's, or the kernel has no smaps.
    """
    try:
        with open(f"/proc/{pid or 'self'}/smaps", "rb") as smaps:
            text = smaps.read()
    except OSError:
        return None
    return parse(text)


def resident_bytes() -> int | None:
    """What this process has in memory, shared or not: that costs nothing to ask. None where the kernel does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def parse(smaps: bytes) -> Footprint | None:
    """The sums over all mappings; None for a text without any."""
    pss = private = 0
    mappings = _MAPPING.findall(smaps)
    for its_pss, clean, dirty, anonymous in mappings:
        pss += int(its_pss)
        # In a private mapping of a file both figures count more than what is ours: untouched pages, and inherited ones.
        private += min(int(clean) + int(dirty), int(anonymous))
    return Footprint(pss << 10, private << 10) if mappings else None
