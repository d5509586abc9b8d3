"""Measures whether a wait for data left the accelerator idle, by two timed events per wait on the training stream.

The first event is recorded when the consumer asks for a batch, the second when it gets one. On the device, the first event happens
when all earlier work is done. The second happens right after it, or when the host records it. The time between them is how long
the stream had nothing to do. A wait during which the device was busy is hidden.

Events are read some steps later, when they are done. So nothing waits for the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

_PENDING = 64
"""How many waits may have unfinished events. More are not timed: a host that runs that far ahead is not waiting."""


class TimedEvent(Protocol):
    """``torch.cuda.Event(enable_timing=True)``, or the equivalent of another device."""

    def record(self) -> Any: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float: ...


class IdleMeter:
    """Sums how much of the waits the device was busy. One per loader, on the thread that iterates."""

    def __init__(self, event: Callable[[], TimedEvent]) -> None:
        self._event = event
        self._free: list[TimedEvent] = []
        self._pending: deque[tuple[int, TimedEvent, TimedEvent]] = deque()
        self._asked: TimedEvent | None = None
        self.hidden_ns = 0
        self.timed_ns = 0
        """How much waiting was timed; ``hidden_ns`` is a part of it."""
        self.broken = False
        """Whether an event raised. Then the device is not asked again, so the trainer sees its errors first."""

    def asked(self) -> None:
        """Note that a wait begins."""
        self._asked = None
        if self.broken or len(self._pending) >= _PENDING:
            return
        try:
            began = self._new()
            began.record()
            self._asked = began
        except Exception:
            self.broken = True

    def given(self, waited_ns: int) -> None:
        """Note that the wait ended."""
        began, self._asked = self._asked, None
        try:
            if began is not None:
                ended = self._new()
                ended.record()
                self._pending.append((waited_ns, began, ended))
            self._read()
        except Exception:
            self.broken = True

    def _read(self) -> None:
        pending = self._pending
        while pending and pending[0][2].query():
            waited_ns, began, ended = pending.popleft()
            idle_ns = min(waited_ns, max(0, int(began.elapsed_time(ended) * 1e6)))
            self.timed_ns += waited_ns
            self.hidden_ns += waited_ns - idle_ns
            self._free += (began, ended)

    def _new(self) -> TimedEvent:
        return self._free.pop() if self._free else self._event()


def idle_meter() -> IdleMeter | None:
    """Return a meter for the accelerator of this process; None without one, or without timed events."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    return IdleMeter(lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
