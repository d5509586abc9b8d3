"""The pilot: looks at windows of a running loader and says how many workers it should have. Pure; one per loader, one thread."""

from __future__ import annotations

from stoker._core.tuning.window import Action, Bounds, Period, Window

FIRST_S = 2.0
"""How long a window is."""


class Pilot:
    """Fed by the autopilot with one window after the other; what it answers is to be done before the next one begins."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    @property
    def period(self) -> Period:
        """How long the next window is to be. Windows are short all the time; the pilot joins them where it wants to know more."""
        return Period(FIRST_S, 4)

    def decide(self, window: Window) -> Action | None:
        """What to do after this window; None: go on. ``window.workers`` tells what became of the last action."""
        return None
