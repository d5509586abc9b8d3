"""Whether a process stands in the wait for a lock, as the kernel names the place where it sleeps."""

from __future__ import annotations

import os

_FILE_LOCKS = ("locks_lock", "flock_lock", "posix_lock", "fcntl_setlk", "nlmclnt_lock")
"""Beginnings of the kernel's functions that wait for ``flock`` and ``fcntl``, on a local disk and over NFS."""

_FUTEX = "futex_"
_OWN_THREADS = 2
"""Of a worker: one makes samples, and one may send them. With more, a futex may be what its own threads share."""


def waits_for_lock(pid: int) -> bool | None:
    """Return whether its main thread sleeps until another process gives up a lock. None: the kernel does not tell. Any thread."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            place = file.read()
        if place.startswith(_FILE_LOCKS):
            return True
        if place.startswith(_FUTEX):
            return len(os.listdir(f"/proc/{pid}/task")) <= _OWN_THREADS
    except OSError:
        return None
    return False if place else None
