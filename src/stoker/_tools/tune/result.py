"""What a tuning came to: one frozen object that every form is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stoker._record.finding import Edit
from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work

__all__ = ["Interval", "Point", "Tuning"]


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """``recommended`` is the answer; all the rest is why."""

    target: str
    batch_size: int | None
    baseline: Setting
    """What the target has now."""
    recommended: Setting
    verdict: str
    """One sentence."""
    why: tuple[str, ...] = ()
    regime: str = "unknown"
    """ "sleep", "storage", "compute", "gil", "parent", "memory", "mixed", "idle" (data is not the bottleneck), "unknown"."""
    warnings: tuple[str, ...] = ()
    """Where the result may not carry over, and what else to know."""
    separated: bool = True
    """False: another setting may be as good; the verdict says so."""
    gain: Interval | None = None
    """Share of the step's time that the recommended setting saves against the baseline. None: nothing was compared."""
    ceiling: float | None = None
    """Share that would be saved if data took no time at all (headspace). None: the demand is not known."""
    limit: str = ""
    """What limits next."""
    stopped: str = ""
    """Why the search ended: "one left", "the rest are within 3 %", "budget", "interrupted", "not the bottleneck", "failed"."""
    spent_s: float = 0.0
    host: Host | None = None
    work: Work | None = None
    demand: Demand = field(default_factory=lambda: Demand(0))
    points: tuple[Point, ...] = ()
    curve: dict[str, Any] | None = None
    """The scaling curve: measured points, fitted law, knee, loss beyond it (``_runtime/simulation/scaling_law.py``)."""
    oracle: dict[str, Any] | None = None
    """What the replay says of settings that were not tried, and how far it was off where they were."""
    starts: dict[str, int | None] = field(default_factory=dict)
    """By start method: nanoseconds to the first batch with two workers; None: workers cannot be started so."""
    edit: Edit | None = None
    """The change of the user's call: the first of ``edits``."""
    edits: tuple[Edit, ...] = ()
    """All that has to be typed (``_tools/tune/edits.py``)."""
    file: str | None = None
    """Where the loader is made, as a path that can be opened; ``line`` is None when nobody knows the line."""
    line: int | None = None
    profile: str = ""
    """Where the profile that ``num_workers="auto"`` picks up was saved; "" if it was not."""
    failure: str = ""
    """Why it could not be done as asked, in a line; ``recommended`` is then the best safe answer."""

    @property
    def changed(self) -> bool:
        """Whether something should be changed."""
        return self.recommended != self.baseline

    @property
    def measured(self) -> bool:
        """Whether the recommended setting was run."""
        return any(each.setting == self.recommended and each.blocks for each in self.points)

    def __str__(self) -> str:
        from stoker._tools.tune.forms import screen

        return screen.render(self)

    def __repr__(self) -> str:
        """One line: what it is made of is long."""
        return f"<Tuning of {self.target}: {self.verdict}>"

    def _repr_markdown_(self) -> str:
        """What a notebook shows."""
        from stoker._tools.tune.forms import markdown

        return markdown.render(self)
