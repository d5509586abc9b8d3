"""Processes that were forked while the user held batches: they go on reading those slots.

Told apart from workers by negative names. A descriptor says when a child is gone; where none could be had its slots are kept for
good.
"""

from __future__ import annotations

import os

from stoker._runtime.protocol import parent_descriptors
from stoker._runtime.scheduler.slots import SlotTable


class ForkedChildren:
    """Of one pool. Called around forks on the forking thread, else on the thread that iterates."""

    def __init__(self, slots: SlotTable) -> None:
        self._slots = slots
        self._count = 0
        self._fds: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether any of them may still be there to be buried."""
        return bool(self._fds)

    def add(self, fd: int) -> None:
        """A child was forked just now: what is leased stays as it is until ``fd`` says that it is gone."""
        self._count += 1
        holder = -self._count  # worker ids are not negative
        self._slots.hold_leased(holder)
        if fd >= 0:
            os.set_blocking(fd, False)
            parent_descriptors.keep_private(fd)
            self._fds[holder] = fd

    def release_ended(self) -> None:
        """Give back the slots of those that are gone."""
        for holder, fd in list(self._fds.items()):
            try:
                gone = os.read(fd, 1) == b""
            except BlockingIOError:
                continue
            if gone:
                parent_descriptors.close_private(self._fds.pop(holder))
                self._slots.forget_worker(holder)

    def close(self) -> None:
        """Stop watching them. Idempotent."""
        for fd in self._fds.values():
            parent_descriptors.close_private(fd)
        self._fds.clear()
