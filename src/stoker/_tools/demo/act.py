"""Defines an act of the demo: it measures one thing, and shows it in a line and as sections of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stoker._tools.render.section import Section

Tell = Callable[[str, float], None]
"""Called with what is being done, and how much of the act is done (0 to 1)."""


@dataclass(frozen=True, slots=True)
class ActContext:
    """What an act may use. ``quick``: all acts together stay under 40 s, else under 3 minutes. ``folder`` is removed in the end."""

    quick: bool
    cpus: int
    folder: str
    tell: Tell
    budget_s: float = 10.0
    """What the act may take, about: its ``SECONDS``, or less when those before it took longer. It measures less then."""


class Act(Protocol):
    """A module of ``_tools.demo.acts``. What ``run`` returns is plain JSON: the demo's record keeps it, and all else is made of it.

    ``lines`` and ``sections`` are also asked when a record is read again, without torch: only ``run`` imports what it needs.
    Ctrl-C comes as KeyboardInterrupt in ``run``, which lets it through or returns what it has: the demo ends then.
    """

    TITLE: str
    SECONDS: tuple[float, float]
    """What it takes here, about: quick, and whole."""

    def run(self, stage: ActContext) -> dict[str, Any]:
        """Do it. May raise: the demo then says so and goes on with the next act."""
        ...

    def lines(self, result: dict[str, Any]) -> list[str]:
        """One to three lines for the one-screen summary, each under 76 columns."""
        ...

    def sections(self, result: dict[str, Any]) -> list[Section]:
        """For the report."""
        ...
