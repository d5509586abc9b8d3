"""The result of a tuning: one frozen object from which every form is rendered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stoker._host.secrets import masked_values
from stoker._record.finding import Edit
from stoker._runtime.simulation.cache_forecast import CacheForecast
from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work

__all__ = ["Interval", "Point", "Tuning"]


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """``recommended`` is the answer; everything else explains it. Secrets in the texts are hidden when it is made."""

    target: str
    batch_size: int | None
    baseline: Setting
    """The target's current setting."""
    recommended: Setting
    verdict: str
    """The answer in one sentence."""
    why: tuple[str, ...] = ()
    regime: str = "unknown"
    """ "sleep", "storage", "compute", "gil", "parent", "memory", "mixed", "idle" (data is not the bottleneck), "unknown"."""
    warnings: tuple[str, ...] = ()
    """Reasons why the result may not hold elsewhere, and other notes."""
    separated: bool = True
    """False: another setting may be as good. The verdict says so."""
    gain: Interval | None = None
    """Share of the step's time that the recommended setting saves against the baseline. None: nothing was compared."""
    ceiling: float | None = None
    """Share of the step's time that would be saved if data took no time (headspace). None: the demand is unknown."""
    limit: str = ""
    """The next limit."""
    stopped: str = ""
    """Why the search ended: "one left", "the rest are within 3 %", "more time would not tell them apart",
    "budget", "interrupted", "not the bottleneck", "no worker can help", "failed"."""
    spent_s: float = 0.0
    host: Host | None = None
    work: Work | None = None
    demand: Demand = field(default_factory=lambda: Demand(0))
    points: tuple[Point, ...] = ()
    curve: dict[str, Any] | None = None
    """The scaling curve: measured points, fitted law, knee, loss beyond it (``_runtime/simulation/scaling_law.py``)."""
    oracle: dict[str, Any] | None = None
    """The replay's predictions for settings that were not tried, and its error for those that were."""
    starts: dict[str, int | None] = field(default_factory=dict)
    """By start method: nanoseconds to the first batch with two workers; None if workers cannot be started so."""
    edit: Edit | None = None
    """The change of the user's call: the first of ``edits``."""
    edits: tuple[Edit, ...] = ()
    """All edits (``_tools/tune/edits.py``)."""
    file: str | None = None
    """The file where the loader is made, as a path that can be opened; ``line`` is None if unknown."""
    line: int | None = None
    profile: str = ""
    """The file of the profile for ``num_workers="auto"``; "" if none was saved."""
    failure: str = ""
    """The reason in a line if the tuning could not be done as asked; ``recommended`` is then the best safe answer."""

    cache: CacheForecast | None = None
    """What a sample cache would gain beside the recommended setting; None: nothing, it does not fit, or it was not measured."""
    cache_gain: float | None = None
    """Share of the time between two batches that it saves from the second epoch on."""

    def __post_init__(self) -> None:
        for name in ("target", "verdict", "why", "warnings", "limit", "failure"):
            object.__setattr__(self, name, masked_values(getattr(self, name)))

    @property
    def changed(self) -> bool:
        """Whether the recommended setting differs from the current one."""
        return self.recommended != self.baseline

    @property
    def measured(self) -> bool:
        """Whether the recommended setting was run."""
        return any(each.setting == self.recommended and each.blocks for each in self.points)

    def __str__(self) -> str:
        from stoker._tools.tune.forms import screen

        return screen.render(self)

    def __repr__(self) -> str:
        """One line, because all fields together are long."""
        return f"<Tuning of {self.target}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """The form that a notebook shows."""
        from stoker._tools.tune.forms import html

        return html.render(self)

    def _repr_markdown_(self) -> str:
        """The form for frontends that show Markdown only."""
        from stoker._tools.tune.forms import markdown

        return markdown.render(self)
