"""How many workers are enough, and how many are too many, from one observation. Pure; each number has a reason."""

from __future__ import annotations

import math
from typing import NamedTuple

from stoker._runtime.autoscale.types import AutoscaleBounds, Observation
from stoker._runtime.simulation.work import Demand, Work

AIM = 0.85
"""The busy share of workers that keep up with the demand. The rest is reserve for slow batches."""

AIM_VARIED = 0.7
VARIED = 0.5
"""The same if batch times vary by more than half of their mean."""

MEMORY_SHARE = 2
"""New workers and their batches may take half of the memory that is left."""

FULL = 0.9
"""CPUs that are used to this share are full."""

_ALMOST = 0.1
"""A worker that would have nine tenths of a CPU is still worth starting."""


class WorkerCeiling(NamedTuple):
    """At most so many workers, for a reason in words; ``code`` is the reason as one word."""

    workers: int
    reason: str
    code: str


def needed(observation: Observation) -> float:
    """Workers that keep up with the demand; infinite if the loop does nothing between batches."""
    making_ns, step_ns = observation.making_ns, observation.step_ns
    if making_ns <= 0:
        return 1.0
    aim = AIM_VARIED if variation(observation.batch_ns) > VARIED else AIM
    return math.ceil(making_ns / (aim * step_ns)) if step_ns > 0 else math.inf


def variation(times_ns: tuple[int, ...]) -> float:
    """The coefficient of variation."""
    count = len(times_ns)
    mean = sum(times_ns) / count if count else 0.0
    if count < 2 or not mean:
        return 0.0
    return float((sum((each - mean) ** 2 for each in times_ns) / (count - 1)) ** 0.5 / mean)


def ceiling(observation: Observation, bounds: AutoscaleBounds) -> WorkerCeiling:
    """The lowest limit that applies. Never below 1."""
    found = [WorkerCeiling(bounds.most, bounds.reason, "most"), knee(observation, bounds)]
    memory = by_memory(observation)
    if memory is not None:
        found.append(memory)
    lowest = min(found, key=lambda each: each.workers)
    return lowest._replace(workers=max(1, lowest.workers))


def knee(observation: Observation, bounds: AutoscaleBounds) -> WorkerCeiling:
    """Workers that fill the CPUs that the training process leaves. Workers that mostly wait fill them late.

    It follows from their times, or from their measured use: workers that hinder each other leave CPUs idle at times.
    """
    wall_ns = max(1, observation.wall_ns)
    share = 1.0 if observation.own_cpu_ns is None else min(1.0, observation.own_cpu_ns / wall_ns)
    free = max(1.0, bounds.cpus - share)
    own_ns = observation.cpu_ns + observation.off_ns
    fill = free * own_ns / observation.cpu_ns if observation.cpu_ns > 0 else math.inf if own_ns else free
    used = observation.cpu_ns * observation.steps / wall_ns
    left = free - (observation.foreign_cpus or 0.0)
    if 0 < used < FULL * left and (observation.busy is None or observation.busy >= AIM):
        fill = max(fill, observation.workers * left / used)
    count = min(bounds.most, math.ceil(fill - _ALMOST)) if math.isfinite(fill) else bounds.most
    where = f" ({bounds.cpus_reason})" if bounds.cpus_reason else ""
    on_cpu = f"{1 - observation.off_share:.0%} of their time" if own_ns else "all the time"
    reason = f"workers that compute {on_cpu} fill the {free:.2g} CPUs that the training process leaves{where}"
    return WorkerCeiling(count, reason, "cpus")


def by_memory(observation: Observation) -> WorkerCeiling | None:
    """Workers that memory has room for; None if unknown."""
    if observation.room_bytes is None:
        return None
    queued = math.ceil(observation.window / max(1, observation.workers))
    each_bytes = (observation.worker_bytes or 0) + observation.batch_bytes * queued
    if each_bytes <= 0:
        return None
    more = max(0, observation.room_bytes) // MEMORY_SHARE // each_bytes
    mib = 1 << 20
    reason = f"one more takes about {each_bytes / mib:.0f} MiB, and {observation.room_bytes / mib:.0f} MiB are left"
    return WorkerCeiling(observation.workers + more, reason, "memory")


def work_of(observation: Observation) -> Work:
    """The batches of an observation for the replay, without their time on the run queue."""
    whole_ns = observation.cpu_ns + observation.off_ns + observation.runq_ns
    kept = (whole_ns - observation.runq_ns) / whole_ns if whole_ns > 0 else 1.0
    times = observation.batch_ns or (int(observation.making_ns),)
    batch_ns = tuple(int(each * kept) for each in times)
    on_cpu = 1.0 - observation.off_share if whole_ns > 0 else 1.0
    return Work(
        observation.rows,
        batch_ns,
        tuple(int(each * on_cpu) for each in batch_ns),
        batch_bytes=observation.batch_bytes,
    )


def demand_of(observation: Observation) -> Demand:
    """The loop's demand in an observation: its steps without waiting."""
    step_ns = int(observation.step_ns)
    own_ns = (observation.own_cpu_ns or 0) // max(1, observation.steps)
    return Demand(step_ns, min(step_ns, own_ns), "window")
