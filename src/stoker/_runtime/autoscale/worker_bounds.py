"""How many workers are enough, and how many are too many, by what a window shows. Pure, and each number with its reason."""

from __future__ import annotations

import math
from typing import NamedTuple

from stoker._runtime.autoscale.types import AutoscaleBounds, Observation
from stoker._runtime.simulation.work import Demand, Work

AIM = 0.85
"""How busy workers should be when they keep up with the demand; the rest is for batches that take longer than others."""

AIM_VARIED = 0.7
VARIED = 0.5
"""The same where batch times vary by more than half of their mean."""

MEMORY_SHARE = 2
"""New workers and their batches may take half of the memory that is left."""

FULL = 0.9
"""CPUs that are used to this share are full."""

_ALMOST = 0.1
"""A worker that would have nine tenths of a CPU for itself is still worth one."""


class WorkerCeiling(NamedTuple):
    """At most so many workers, for a reason in words; ``code`` is the same reason without its numbers."""

    workers: int
    reason: str
    code: str


def needed(window: Observation) -> float:
    """Workers that keep up with the demand; infinite where the loop does nothing between batches."""
    making_ns, step_ns = window.making_ns, window.step_ns
    if making_ns <= 0:
        return 1.0
    aim = AIM_VARIED if variation(window.batch_ns) > VARIED else AIM
    return math.ceil(making_ns / (aim * step_ns)) if step_ns > 0 else math.inf


def variation(times_ns: tuple[int, ...]) -> float:
    """Coefficient of variation."""
    count = len(times_ns)
    mean = sum(times_ns) / count if count else 0.0
    if count < 2 or not mean:
        return 0.0
    return float((sum((each - mean) ** 2 for each in times_ns) / (count - 1)) ** 0.5 / mean)


def ceiling(window: Observation, bounds: AutoscaleBounds) -> WorkerCeiling:
    """The lowest of those that apply. Never below 1."""
    found = [WorkerCeiling(bounds.most, bounds.reason, "most"), knee(window, bounds)]
    memory = by_memory(window)
    if memory is not None:
        found.append(memory)
    lowest = min(found, key=lambda each: each.workers)
    return lowest._replace(workers=max(1, lowest.workers))


def knee(window: Observation, bounds: AutoscaleBounds) -> WorkerCeiling:
    """Workers that fill the CPUs the training process leaves them. Those that mostly wait for something else fill them late.

    By their times, or by what they were seen to use: workers that get into each other's way leave CPUs idle at times.
    """
    wall_ns = max(1, window.wall_ns)
    share = 1.0 if window.own_cpu_ns is None else min(1.0, window.own_cpu_ns / wall_ns)
    free = max(1.0, bounds.cpus - share)
    own_ns = window.cpu_ns + window.off_ns
    fill = free * own_ns / window.cpu_ns if window.cpu_ns > 0 else math.inf if own_ns else free
    used = window.cpu_ns * window.steps / wall_ns
    left = free - (window.foreign_cpus or 0.0)
    if 0 < used < FULL * left and (window.busy is None or window.busy >= AIM):
        fill = max(fill, window.workers * left / used)
    count = min(bounds.most, math.ceil(fill - _ALMOST)) if math.isfinite(fill) else bounds.most
    where = f" ({bounds.cpus_reason})" if bounds.cpus_reason else ""
    on_cpu = f"{1 - window.off_share:.0%} of their time" if own_ns else "all the time"
    reason = f"workers that compute {on_cpu} fill the {free:.2g} CPUs that the training process leaves{where}"
    return WorkerCeiling(count, reason, "cpus")


def by_memory(window: Observation) -> WorkerCeiling | None:
    """Workers that memory has room for; None where that is not known."""
    if window.room_bytes is None:
        return None
    queued = math.ceil(window.window / max(1, window.workers))
    each_bytes = (window.worker_bytes or 0) + window.batch_bytes * queued
    if each_bytes <= 0:
        return None
    more = max(0, window.room_bytes) // MEMORY_SHARE // each_bytes
    mib = 1 << 20
    reason = (
        f"one more takes about {each_bytes / mib:.0f} MiB, and {window.room_bytes / mib:.0f} MiB are left"
    )
    return WorkerCeiling(window.workers + more, reason, "memory")


def work_of(window: Observation) -> Work:
    """The batches of a window as the replay wants them: without the time that they spent on the run queue."""
    whole_ns = window.cpu_ns + window.off_ns + window.runq_ns
    kept = (whole_ns - window.runq_ns) / whole_ns if whole_ns > 0 else 1.0
    times = window.batch_ns or (int(window.making_ns),)
    batch_ns = tuple(int(each * kept) for each in times)
    on_cpu = 1.0 - window.off_share if whole_ns > 0 else 1.0
    return Work(
        window.rows, batch_ns, tuple(int(each * on_cpu) for each in batch_ns), batch_bytes=window.batch_bytes
    )


def demand_of(window: Observation) -> Demand:
    """What the loop did in a window, apart from waiting."""
    step_ns = int(window.step_ns)
    own_ns = (window.own_cpu_ns or 0) // max(1, window.steps)
    return Demand(step_ns, min(step_ns, own_ns), "window")
