"""The machine, as far as loaders depend on it. Read in milliseconds, without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """What is not told is None."""

    shm_bytes: int | None = None
    shm_free_bytes: int | None = None


def gather() -> Machine:
    """Read it now. Never raises."""
    import os

    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return Machine()
    return Machine(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
