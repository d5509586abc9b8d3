"""Limits the time of user code in this process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stoker._tools.sandbox.refusal import TargetRefused

_EARLY = 0.9
_SOON_S = 0.02
_AGAIN_S = 0.3


class BatchTimeout(TargetRefused):
    """No batch came in time."""


class _AlarmHandler:
    """Handles SIGALRM while a limit is set. ``held``: the alarm is delivered later."""

    def __init__(self, seconds: float, what: str, look_s: float | None, look: Callable[[], None]) -> None:
        self._ends = time.monotonic() + seconds
        self._said = f"{what} within {seconds:.3g} s"
        self._look_s, self._look = look_s, look
        self.held = False

    def wind(self) -> None:
        left_s = max(1e-3, self._ends - time.monotonic())
        wait_s = left_s if self._look_s is None else min(self._look_s, left_s)
        signal.setitimer(signal.ITIMER_REAL, max(_SOON_S, wait_s) if self.held else wait_s)

    def __call__(self, number: int, frame: Any) -> None:
        if not self.held and time.monotonic() >= self._ends:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)  # whoever it comes to may catch it
            raise BatchTimeout(self._said)
        self._look()
        self.wind()


@contextmanager
def limit(
    seconds: float, what: str = "no batch came", *, look_s: float | None = None, look: Callable[[], None] = lambda: None
) -> Iterator[int]:  # fmt: skip
    """Raise BatchTimeout in whatever waits once the time is up. Main thread only; does not nest.

    Yields until when, on ``perf_counter_ns``, something may be begun: a little before. ``look`` is called every ``look_s`` in
    between, whatever is waited for.
    """
    bell = _AlarmHandler(seconds, what, look_s, look)
    began = time.monotonic()
    left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
    before = signal.signal(signal.SIGALRM, bell)
    bell.wind()
    try:
        yield time.perf_counter_ns() + int(seconds * _EARLY * 1e9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:  # somebody else's, which is put back
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left_s - (time.monotonic() - began)), again_s)


@contextmanager
def held() -> Iterator[None]:
    """Delay BatchTimeout while processes are being started: raised in here, it would leave them half started."""
    bell = signal.getsignal(signal.SIGALRM)
    if not isinstance(bell, _AlarmHandler):
        yield
        return
    bell.held = True
    try:
        yield
    finally:
        bell.held = False
