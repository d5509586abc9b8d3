"""A time limit on code that runs in this thread. Only where the system can interrupt it: the main thread, with SIGALRM unused."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeUp(BaseException):
    """Raised inside the limited code. No Exception: a dataset that catches those must not catch this."""


def can_limit() -> bool:
    """Whether ``limit`` works here and now: nobody else uses SIGALRM, and this is the thread that signals reach."""
    return (
        threading.current_thread() is threading.main_thread()
        and hasattr(signal, "setitimer")
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp in the block if it takes longer. Interrupts sleeping and reading too, but no computation in C."""
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:  # the signal may be handled only after the block has ended
            raise TimeUp

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
