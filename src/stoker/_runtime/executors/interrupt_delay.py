"""Delays Ctrl-C while something is made that nobody owns yet: a descriptor, a process, or an object that holds some.

CPython handles signals between a call's return and the store of its result. What was made there would be lost, and stay open.
A delayed interrupt comes at the end of the region, when the result has its owner. Long waits inside let it through.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` looks each handler up in its enums, which takes ten times as long
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGINT = int(signal.SIGINT)


class InterruptDelay:
    """``with InterruptDelay():`` the handler of Ctrl-C runs when the block ends. Does nothing on other threads than the main one.

    Regions may be nested: the outermost one counts. Only for work that ends soon.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._came = False

    def __enter__(self) -> None:
        handler = _signal.getsignal(_SIGINT)
        if callable(handler) and _current() is None and _is_main():
            self._handler = handler
            _signal.signal(_SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        if _current() is self:
            came, self._came = self._came, False
            _signal.signal(_SIGINT, self._handler)
            if came:
                _signal.raise_signal(_SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True


@contextmanager
def interrupts_let_through() -> Iterator[None]:
    """Inside a delay, let Ctrl-C come at once: for waits, and for the user's code."""
    delay = _current() if _is_main() else None
    if delay is None:
        yield
        return
    delay.__exit__()
    try:
        yield
    finally:
        delay.__enter__()


def _current() -> InterruptDelay | None:
    """The delay in force, known by the handler that it has set."""
    owner = getattr(_signal.getsignal(_SIGINT), "__self__", None)
    return owner if isinstance(owner, InterruptDelay) else None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
