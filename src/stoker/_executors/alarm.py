"""A time limit on code that runs in this thread. Only where the system can interrupt it: the main thread, with SIGALRM unused."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_AGAIN_S = 1.0
"""It rings again: what is raised in a finalizer or a weak reference's callback goes nowhere. Code that cleans up has this long."""


class TimeUp(BaseException):
    """Raised inside the limited code. No Exception: a dataset that catches those must not catch this."""


def can_limit() -> bool:
    """Whether ``within`` works here and now: nobody else uses SIGALRM, and this is the thread that signals reach."""
    return (
        threading.current_thread() is threading.main_thread()
        and hasattr(signal, "setitimer")
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns; raises TimeUp in it if it takes longer. Interrupts sleeping and reading too, but no computation in C.

    One function and no context manager: an alarm at the door of ``__exit__`` would keep its end from being reached.
    """
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:  # the signal may be handled only after the work has ended
            raise TimeUp

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, _AGAIN_S))
        return work()
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
