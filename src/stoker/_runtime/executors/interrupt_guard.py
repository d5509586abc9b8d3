"""Notices that an exception from outside, such as Ctrl-C, came at a moment when it cost a batch.

An exception of a signal handler can come between any two bytecodes. The loop does not try to prevent that. It marks the regions
in which work would be lost. A region that was not left cleanly stays marked, and whoever comes next refuses to go on.
Only while workers start are exceptions put off (``interrupt_delay``).
"""

from __future__ import annotations


class InterruptGuard:
    """``with guard:`` marks a region; regions may be nested. Used on the thread that iterates.

    An executor holds its guard over the end of a call: from the moment it has read messages until the caller has handled them.
    """

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0
        """How many regions are open, or were left by an exception. Between two calls of ``next`` anything but 0 is damage."""

    def __enter__(self) -> None:
        self.held += 1

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self.held -= 1

    def leave(self) -> None:
        """Leave the innermost region although an exception is on its way: that one costs nothing."""
        self.held -= 1

    def hold(self) -> None:
        """Begin a region that another call ends. Idempotent."""
        self.held = 1

    def release(self) -> None:
        """End it. Idempotent."""
        self.held = 0
