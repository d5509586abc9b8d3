"""Answers that need no measurement: the machine from outside, the limits of a target, and a safe setting."""

from __future__ import annotations

import math
from dataclasses import replace

from stoker._host import memory_available
from stoker._host.cpus import cpus
from stoker._runtime.simulation import limits
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune import knobs
from stoker._tools.tune.facts import Target
from stoker._tools.tune.model.candidates import SettingBounds
from stoker._tools.tune.model.prior import NEAR, Prior, prior, safe_workers, window_for


def this_host(ranks: int | None) -> Host:
    """The facts of the machine that are visible without a sandbox."""
    found = cpus()
    shared = ranks or found.ranks
    usable = found.usable if ranks in (None, found.ranks) else max(1, math.floor(found.affinity / shared))
    return Host(float(usable), found.reason, found.machine, shared, memory_available.room_bytes())


def bounds_of(target: Target | None) -> SettingBounds:
    """The limits of the choice for a target."""
    if target is None:
        return SettingBounds()
    return SettingBounds(
        threads=not target.stream,
        workers=not target.daemonic,
        most=1 if target.stream and not target.asks_worker else None,
    )


def safe_setting(
    host: Host, target: Target | None, replayed: int | None, work: Work | None, demand: Demand
) -> Setting:
    """The answer if nothing was compared: ``replayed`` workers, from one worker's batches.

    If these are unknown (None), it is the current setting, unless the machine alone speaks against it.
    """
    own = target.setting if target is not None else Setting()
    bounds = bounds_of(target)
    if not bounds.workers or replayed == 0:
        return Setting(0, pin=own.pin, engine=own.engine, extra=_lasting(own))
    if replayed is not None and replayed == own.workers:
        return own
    most = bounds.most if bounds.most is not None else limits.LAST_RESORT
    if replayed is not None and work is not None:
        return window_for(replace(own, workers=min(replayed, most)), host, work, demand)
    count = min(safe_workers(host), most)
    if 1 <= own.workers <= max(count, bounds.most or math.floor(host.cpus)):
        return own
    return replace(own, workers=count, prefetch=own.prefetch or 2)


def _lasting(setting: Setting) -> tuple[tuple[str, object], ...]:
    """The extra arguments that mean something without workers."""
    pooled = {each.name for each in knobs.KNOBS if each.needs_workers}
    return tuple(each for each in setting.extra if each[0] not in pooled)


def replayed_workers(
    host: Host, work: Work | None, demand: Demand, known: Prior | None, batches: int | None
) -> int | None:
    """The number of workers that the replay predicts to be best; None if there is nothing to replay."""
    if work is None or not work.batch_ns:
        return None
    known = known or prior(host, work, demand, batches=batches)
    return 0 if known.predicted[0] <= NEAR * min(known.predicted.values()) else known.first
