"""Answers that need no measurement: the machine from outside, the limits of a target, and a safe setting."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stoker._host import memory_available
from stoker._host.cpus import cpus
from stoker._runtime.simulation import limits
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune import knobs
from stoker._tools.tune.facts import Target, ThreadSafety
from stoker._tools.tune.model.candidates import SettingBounds
from stoker._tools.tune.model.prior import NEAR, Prior, prior, safe_workers, window_for
from stoker.arguments import DEFAULT_EXECUTOR

_THREAD_BATCHES = 32
_LEAST_BATCHES = 4
_MOST_THREADS = 32
_THREADS_SHARE = 0.04
_THREADS_S = (0.3, 2.0)
"""The time that one thread may take for the batches to compare: a share of what is left, within these bounds."""
_THREADS_LIMIT = 0.2
"""Share of the time left after which a part of the comparison is given up."""


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


def without_threads(setting: Setting) -> Setting:
    """The setting with processes in the place of threads."""
    return replace(setting, executor=DEFAULT_EXECUTOR, threads=1)


def may_use_threads(safety: ThreadSafety | None, baseline: Setting) -> bool:
    """Whether settings with threads may be raced and recommended; ``safety`` is None where nobody looked.

    Where nothing shows that threads leave batches as they are, only a target that uses threads already keeps them.
    """
    if safety is None or safety.safe is None:
        return baseline.shares
    return safety.safe


def left_out_sentence(safety: ThreadSafety, baseline: Setting) -> str:
    """Why there are no threads, or "" if there may be. For a target that uses threads already, a warning."""
    if safety.safe:
        return ""
    if safety.safe is False:
        now = "change" if baseline.shares else "would change"
        return f"Threads were left out, because they {now} the batches: {safety.text}."
    if baseline.shares:
        return f"Nothing shows that threads leave the batches as they are: {safety.text}."
    return f"Threads were not tried: {safety.text}."


def thread_trial(settings: Iterable[Setting], own_collate: bool, work: Work, left_s: float) -> dict[str, Any]:
    """The input of the probe that compares the batches of threads: as many as there is time for.

    Batches get fewer rows where samples are slow; a ``collate_fn`` of the user's may need all of them, so there are fewer batches.
    """
    least_s, most_s = _THREADS_S
    seconds = max(least_s, min(most_s, _THREADS_SHARE * left_s))
    batch_s = max(1e-6, work.typical_ns / 1e9)
    sample_s = batch_s / max(1, work.rows)
    rows = work.rows if own_collate else max(1, min(work.rows, int(seconds / _THREAD_BATCHES / sample_s)))
    batches = max(_LEAST_BATCHES, min(_THREAD_BATCHES, int(seconds / (rows * sample_s))))
    threads = max((each.workers if each.kind.threads else each.threads for each in settings), default=1)
    return {
        "threads": min(_MOST_THREADS, max(2, threads)),
        "rows": None if rows >= work.rows else rows,
        "batches": batches,
        "seconds": seconds,
        "limit_s": max(1.0, _THREADS_LIMIT * left_s),
    }


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
