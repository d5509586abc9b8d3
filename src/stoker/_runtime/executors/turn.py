"""A turn that worker threads take: while one has it, the others wait for it."""

from __future__ import annotations

import threading
from types import FrameType


class Turn:
    """A lock that knows which thread has it. A thread that has the turn may take it again, and give it back at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None

    def take(self, within_s: float = -1) -> bool:
        """Wait until no other thread has the turn, for so long at most. Whether this thread has it."""
        thread = threading.get_ident()
        if self._holder != thread:
            if not self._lock.acquire(timeout=within_s):
                return False
            self._holder = thread
        return True

    def leave(self) -> None:
        """Let the next thread have the turn. Idempotent, and without effect where another thread has it."""
        if self._holder == threading.get_ident():
            self._holder = None
            self._lock.release()

    def awaited_by(self, thread: int | None, frame: FrameType) -> int | None:
        """The thread that this one, whose innermost frame this is, waits for; None if it does not wait."""
        holder = self._holder
        return holder if frame.f_code is Turn.take.__code__ and holder != thread else None
