"""Keeps slots that a forked child still reads: the user held their batches when the process forked.

Children hold slots under negative ids, workers under theirs. A descriptor tells when a child is gone. Without a descriptor the
slots are kept for good.
"""

from __future__ import annotations

import os

from stoker._runtime.protocol import parent_descriptors
from stoker._runtime.scheduler.slots import SlotTable


class ForkedChildren:
    """The forked children of one pool. ``add`` runs on the forking thread, the rest on the thread that iterates."""

    def __init__(self, slots: SlotTable) -> None:
        self._slots = slots
        self._count = 0
        self._fds: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether any child is watched."""
        return bool(self._fds)

    def add(self, fd: int) -> None:
        """A child was forked just now. Keep all leased slots until ``fd`` reports its end."""
        self._count += 1
        holder = -self._count  # worker ids are not negative
        self._slots.hold_leased(holder)
        if fd >= 0:
            os.set_blocking(fd, False)
            parent_descriptors.keep_private(fd)
            self._fds[holder] = fd

    def release_ended(self) -> None:
        """Release the slots of children that are gone."""
        for holder, fd in list(self._fds.items()):
            try:
                gone = os.read(fd, 1) == b""
            except BlockingIOError:
                continue
            if gone:
                parent_descriptors.close_private(self._fds.pop(holder))
                self._slots.forget_worker(holder)

    def close(self) -> None:
        """Stop watching all children. Idempotent."""
        for fd in self._fds.values():
            parent_descriptors.close_private(fd)
        self._fds.clear()
