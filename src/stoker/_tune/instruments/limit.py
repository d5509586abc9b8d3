"""A time limit on what the user's code does in this process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stoker._tune.instruments.failure import Refused

_EARLY = 0.9


class Late(Refused):
    """No batch came in time."""


@contextmanager
def limit(
    seconds: float,
    what: str = "no batch came",
    *,
    look_s: float | None = None,
    look: Callable[[], None] = lambda: None,
) -> Iterator[int]:
    """Raise Late in whatever waits once the time is up. Main thread only; does not nest.

    Yields until when, on ``perf_counter_ns``, something may be begun: a little before. ``look`` is called every ``look_s`` in
    between, whatever is waited for.
    """
    ends = time.monotonic() + seconds

    def wind() -> None:
        left_s = max(1e-3, ends - time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, left_s if look_s is None else min(look_s, left_s))

    def ring(number: int, frame: Any) -> None:
        if time.monotonic() >= ends:
            raise Late(f"{what} within {seconds:.3g} s")
        look()
        wind()

    began = time.monotonic()
    left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
    before = signal.signal(signal.SIGALRM, ring)
    wind()
    try:
        yield time.perf_counter_ns() + int(seconds * _EARLY * 1e9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:  # somebody else's, which is put back
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left_s - (time.monotonic() - began)), again_s)
