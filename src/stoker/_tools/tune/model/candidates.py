"""The settings that enter the race: first the baseline and at most five more; later those next to the best one.

The knobs propose them (``_tools/tune/knobs/``). This module puts the proposals in order and drops those that run alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune import knobs
from stoker._tools.tune.model.prior import NEAR, SLEEPY, Prior, predict, window_for

MOST = 6
_MOST_AROUND = 3
_ENOUGH_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True)
class SettingBounds:
    """What may not be chosen for a target."""

    threads: bool = True
    """Whether several threads may use the dataset at once: not a stream."""
    workers: bool = True
    """Whether there may be workers: False in a process that may have no children."""
    most: int | None = None
    """The most workers that the target allows: an unsharded stream has one."""
    start_method: str | None = None
    """How workers have to be started, if the target's own way does not work."""


@dataclass(frozen=True, slots=True)
class KnobContext:
    """The facts that a knob's proposals depend on, and the replay's predictions for settings."""

    host: Host
    work: Work
    demand: Demand
    prior: Prior
    bounds: SettingBounds

    @property
    def most_workers(self) -> int:
        """The most worker processes that the race may try."""
        edge, most = self.prior.edge, self.bounds.most
        return edge if most is None else min(edge, most)

    @property
    def mostly_waits(self) -> bool:
        """Whether making a batch is mostly waiting, so that there may be more workers than CPUs."""
        return self.work.off_share > SLEEPY

    def predicted_ns(self, setting: Setting) -> float:
        """The predicted time between two batches."""
        return predict(setting, self.host, self.work, self.demand).interval_ns

    def with_window(self, setting: Setting) -> Setting:
        """The setting with the ``prefetch_factor`` that the replay asks for."""
        return window_for(setting, self.host, self.work, self.demand)

    def without_workers(self, setting: Setting) -> Setting:
        """The setting without workers, and without the values that need them."""
        for knob in knobs.KNOBS:
            if knob.needs_workers:
                setting = knob.put(setting, knob.default)
        return replace(setting, workers=0)

    def enough_workers(self, setting: Setting, most: int) -> Setting:
        """The setting with the fewest workers that are predicted to be as good as any, up to ``most``.

        For threads this assumes that the GIL does not limit them: the race finds out whether it does.
        """
        hopeful = setting.kind.threads
        predicted = {
            count: predict(
                replace(setting, workers=count, prefetch=2),
                self.host,
                self.work,
                self.demand,
                hopeful=hopeful,
            ).interval_ns
            for count in _ENOUGH_COUNTS
            if count <= most
        }
        best_ns = min(predicted.values())
        return replace(setting, workers=min(count for count, ns in predicted.items() if ns <= NEAR * best_ns))


def first(baseline: Setting, context: KnobContext) -> tuple[Setting, ...]:
    """The settings of the first race, the baseline first. The replay chooses the window of each."""
    bounds = context.bounds
    own = Setting(
        start_method=bounds.start_method or baseline.start_method, pin=baseline.pin, extra=baseline.extra
    )
    allowed = [each for each in knobs.KNOBS if bounds.workers or not each.needs_workers]
    found = [setting for knob in allowed for setting in knob.first(baseline, own, context)]
    found += [setting for knob in allowed for setting in knob.further(own, context)]
    return _distinct(baseline, map(context.with_window, found))[:MOST]


def around(best: Setting, tried: Collection[Setting], context: KnobContext) -> tuple[Setting, ...]:
    """Settings next to the best one that were not tried, in the order of the knobs. At most three."""
    found = [
        setting
        for knob in knobs.KNOBS
        if best.workers or not knob.needs_workers
        for setting in knob.around(best, tried, context)
    ]
    new = [each for each in _distinct(best, found)[1:] if not any(_same(each, other) for other in tried)]
    return tuple(new[:_MOST_AROUND])


def _same(one: Setting, other: Setting) -> bool:
    """Whether two settings run alike: without workers, most values mean nothing."""
    if not one.workers and not other.workers:
        return (one.engine, one.pin, one.extra) == (other.engine, other.pin, other.extra)
    return one == other


def _distinct(baseline: Setting, settings: Iterable[Setting]) -> tuple[Setting, ...]:
    found = [baseline]
    for each in settings:
        if not any(_same(each, other) for other in found):
            found.append(each)
    return tuple(found)
