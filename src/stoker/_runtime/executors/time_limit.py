"""Limits the time of code on this thread. Works on the main thread only, where SIGALRM is not in use."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
_FINALIZE = weakref.finalize.__call__.__code__

_AGAIN_S = 1.0
"""The alarm repeats after this time: an exception raised in a C callback of a weak reference is lost. Clean-up has this long."""

_SOON_S = 0.001
"""In a finalizer the exception would be lost and leave work half done. So the alarm repeats after this time, up to a second."""


class TimeUp(BaseException):
    """Raised inside the limited code. Not an Exception, so a dataset that catches those does not catch it."""


def can_limit() -> bool:
    """Whether ``within`` works here: nothing else uses SIGALRM, and this is the main thread."""
    return (
        threading.current_thread() is threading.main_thread()
        and hasattr(signal, "setitimer")
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return the result of ``work``; raise TimeUp inside it when it takes longer.

    Interrupts sleeping and reading, but no computation in C. This is a function and no context manager, because an alarm at the
    start of ``__exit__`` would skip its clean-up.
    """
    armed = True
    # By the clock, because a timer of one millisecond may take ten.
    defer_until_s = time.monotonic() + seconds + _AGAIN_S

    def ring(number: int, frame: FrameType | None) -> None:
        if not armed:  # the signal may be handled only after the work has ended
            return
        if time.monotonic() < defer_until_s and _cleaning_up(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON_S, max(seconds, _AGAIN_S))
            return
        raise TimeUp

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, _AGAIN_S))
        return work()
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _cleaning_up(frame: FrameType | None) -> bool:
    """Whether a finalizer is running: the collector may call one at any moment."""
    while frame is not None:
        if frame.f_code is _FINALIZE or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
