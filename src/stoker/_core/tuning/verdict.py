"""What a search comes down to, in sentences: the verdict, the reasons with their numbers, what limits next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker._core.finding import counted, duration
from stoker._core.tuning.point import Interval, Point
from stoker._core.tuning.prior import Prior
from stoker._core.tuning.setting import Setting
from stoker._core.tuning.work import Demand, Host, Work

CEILING = 0.03
"""Of a step's time: what could be saved at best must be more than this to be worth a search."""


@dataclass(frozen=True, slots=True)
class Case:
    """All that the sentences are made of. None: not known."""

    baseline: Setting
    chosen: Setting
    points: tuple[Point, ...] = ()
    rivals: tuple[Setting, ...] = ()
    stopped: str = ""
    host: Host | None = None
    work: Work | None = None
    demand: Demand = field(default_factory=lambda: Demand(0))
    prior: Prior | None = None
    regime: str = "unknown"
    ceiling: float | None = None
    crowded: bool = False
    stream: bool = False
    asks_worker: bool = True
    batches: int | None = None
    failure: str = ""

    def point(self, setting: Setting) -> Point | None:
        """What was measured of it."""
        return next((each for each in self.points if each.setting == setting and each.blocks), None)


@dataclass(frozen=True, slots=True)
class Said:
    """As in Tuning."""

    verdict: str
    why: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    limit: str = ""
    gain: Interval | None = None


def say(case: Case) -> Said:
    """Never more than a screen."""
    gain = gain_of(case)
    return Said(_verdict(case, gain), (), (), "", gain)


def gain_of(case: Case) -> Interval | None:
    """Share of the step's time that the chosen setting saves."""
    chosen, base = case.point(case.chosen), case.point(case.baseline)
    if chosen is None or base is None:
        return None
    if case.chosen == case.baseline:
        return Interval(0.0, 0.0, 0.0)
    return Interval(1 - chosen.ratio.middle, 1 - min(9.0, chosen.ratio.high), 1 - chosen.ratio.low)


def described(setting: Setting) -> str:
    """As one would say it: "4 workers", "8 threads", "no workers", "2 workers with 8 threads each"."""
    if not setting.workers:
        return "no workers"
    if setting.executor == "thread":
        return f"{counted(setting.workers, 'thread')} as workers"
    said = counted(setting.workers, "worker")
    return f"{said} with {setting.threads} threads each" if setting.threads > 1 else said


def _verdict(case: Case, gain: Interval | None) -> str:
    if gain is None:
        return f"{described(case.chosen)}: nothing was compared."
    return f"{described(case.chosen)}: {gain.middle:.0%} less time a step."


def _pairs(points: Sequence[Point]) -> list[str]:
    return [f"{described(each.setting)}: {duration(each.interval_ns.middle / 1e9)}" for each in points]
