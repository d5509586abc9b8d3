"""Measures how long copies to the device take there, by timed events around some of them.

The host does not see a copy: it begins one and goes on. What the loop waited for is in the record (the stage ``copy``). The rest
of the time that copies took was hidden behind the loop.
"""

from __future__ import annotations

from collections import deque

import torch

_FIRST = 4
_EVERY = 16
"""The first few copies are timed, then one in so many: two events cost a few microseconds."""
_PENDING = 8


class CopyTimes:
    """Of one device link, on the thread that begins the copies. Nothing here waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pending: deque[tuple[torch.Event, torch.Event]] = deque()
        self._copies = 0
        self._timed = 0
        self._timed_ns = 0
        self._broken = False

    def begun(self, stream: torch.Stream) -> torch.Event | None:
        """A copy begins now. Gives the event before it, if it is to be timed."""
        self._copies += 1
        self._read()
        if (
            self._broken
            or len(self._pending) >= _PENDING
            or (self._copies > _FIRST and self._copies % _EVERY)
        ):
            return None
        try:
            before = torch.Event(self._device, enable_timing=True)
            before.record(stream)
        except (RuntimeError, TypeError):  # a device that times nothing
            self._broken = True
            return None
        return before

    def ended(self, before: torch.Event, stream: torch.Stream) -> torch.Event | None:
        """The copy that is timed was begun. Gives the event behind it; None if the device refuses one that is timed."""
        try:
            after = torch.Event(self._device, enable_timing=True)
            after.record(stream)
        except (RuntimeError, TypeError):
            self._broken = True
            return None
        self._pending.append((before, after))
        return after

    def _read(self) -> None:
        pending = self._pending
        try:
            while pending and pending[0][1].query():
                before, after = pending.popleft()
                self._timed_ns += max(0, int(before.elapsed_time(after) * 1e6))
                self._timed += 1
        except (RuntimeError, IndexError):
            self._broken = True

    @property
    def copied_ns(self) -> int | None:
        """How long all copies took, by those that were timed. None: none was. Any thread."""
        return self._timed_ns * self._copies // self._timed if self._timed else None
