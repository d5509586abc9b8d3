"""Questions to the replay: the window that is needed, the effect of other hardware, and the replay's own error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from stoker._runtime.scheduler.policy import BUDGET_SHARE, DEEPEN_LIMIT
from stoker._runtime.simulation.point import Point
from stoker._runtime.simulation.replay import SimulationResult, replay_setting
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Work

STALL = 0.005
"""A window is deep enough if a deeper one saves less than this share of the time."""

PREFETCH = (1, 2, 3, 4, 6, 8, 12, DEEPEN_LIMIT)
"""The numbers of batches per worker that are tried."""


@dataclass(frozen=True, slots=True)
class SimulationCase:
    """A setting on a machine under a demand: the input of a replay beside the batch times. ``name`` is for people."""

    setting: Setting
    cpus: float
    demand: Demand
    in_order: bool = True
    window: int = 0
    """The window in batches, if it is not the setting's."""
    name: str = ""

    def answer(self, work: Work) -> SimulationResult:
        """The simulated run."""
        return replay_setting(
            work, self.demand, self.setting, self.cpus, in_order=self.in_order, window=self.window
        )

    def plain(self, work: Work) -> dict[str, Any]:
        """The case and its answer, as plain values."""
        run = self.answer(work)
        return {
            "name": self.name,
            "workers": self.setting.workers,
            "window": self.window or self.setting.window,
            "in_order": self.in_order,
            "cpus": self.cpus,
            "step_ns": self.demand.step_ns,
            "interval_ns": run.interval_ns,
            "stall": run.stall,
            "busy": run.busy,
        }


def faster(demand: Demand, times: float) -> Demand:
    """The same loop on an accelerator that is so many times as fast. Its CPU time stays."""
    device_ns = max(0, demand.step_ns - demand.cpu_ns)
    return replace(demand, step_ns=min(demand.cpu_ns, demand.step_ns) + round(device_ns / times))


def what_if(case: SimulationCase, work: Work) -> list[dict[str, Any]]:
    """The case, and variations: other workers, windows and order, four more cores, and an accelerator twice as fast."""
    setting = case.setting
    cases = [replace(case, name="as it is")]
    if setting.workers:
        if setting.workers > 1:
            cases.append(
                replace(
                    case,
                    setting=replace(setting, workers=setting.workers // 2),
                    window=0,
                    name="half the workers",
                )
            )
        cases.append(
            replace(
                case,
                setting=replace(setting, workers=setting.workers * 2),
                window=0,
                name="twice the workers",
            )
        )
        cases.append(replace(case, window=2 * (case.window or setting.window), name="twice the window"))
        if case.in_order:
            cases.append(replace(case, in_order=False, name="any order"))
    else:
        cases.append(replace(case, setting=replace(setting, workers=1), window=0, name="one worker"))
    cases.append(replace(case, cpus=case.cpus + 4, name="4 more cores"))
    if setting.workers:
        more = replace(setting, workers=setting.workers + 4)
        cases.append(
            replace(case, setting=more, window=0, cpus=case.cpus + 4, name="4 more cores and workers")
        )
    if case.demand.step_ns > case.demand.cpu_ns:
        cases.append(replace(case, demand=faster(case.demand, 2.0), name="an accelerator twice as fast"))
    return [each.plain(work) for each in cases]


def prefetch_for(case: SimulationCase, work: Work, *, room_bytes: int | None = None) -> int:
    """The smallest ``prefetch_factor`` that loses less than half a percent of the time, within a quarter of the memory.

    If the loop takes several batches at once, the window holds these and one in progress for every worker.
    """
    setting, demand = case.setting, case.demand
    if not setting.workers:
        return 1
    most = PREFETCH[-1]
    if room_bytes is not None and work.batch_bytes:
        most = max(1, min(most, room_bytes // BUDGET_SHARE // work.batch_bytes // setting.workers))
    least = 1
    if demand.burst > 1:
        least = min(most, -(-(demand.burst + setting.workers) // setting.workers))
    depths = sorted({least, most, *(each for each in PREFETCH if least < each < most)})

    def interval_ns(depth: int) -> float:
        return replace(case, setting=replace(setting, prefetch=depth), window=0).answer(work).interval_ns

    best_ns = interval_ns(depths[-1])
    for depth in depths[:-1]:
        if interval_ns(depth) <= best_ns / (1.0 - STALL):
            return depth
    return depths[-1]


def error(points: Iterable[Point]) -> dict[str, Any]:
    """The error of replays of measured settings, as shares of the measured interval, as plain values.

    ``bias`` is the median with its sign. Above 0, settings were faster than predicted.
    """
    return error_of(
        (
            point.setting.arguments() | {"engine": point.setting.engine},
            point.predicted_ns,
            point.interval_ns.middle,
        )
        for point in points
        if point.predicted_ns is not None and not point.failure
    )


def error_of(pairs: Iterable[tuple[Any, float, float]]) -> dict[str, Any]:
    """The same, for triples of a description, the predicted interval and the measured interval."""
    off = [(predicted / measured - 1.0, what) for what, predicted, measured in pairs if measured > 0]
    if not off:
        return {"points": 0, "median": None, "worst": None, "bias": None, "worst_at": None}
    worst, where = max(off, key=lambda each: abs(each[0]))
    return {
        "points": len(off),
        "median": median(abs(share) for share, _ in off),
        "worst": abs(worst),
        "bias": median(share for share, _ in off),
        "worst_at": where,
    }
