"""Combines the observations of several ranks into one, for a policy that decides for all loaders of a job on this machine. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stoker._runtime.autoscale.types import Observation

_MOST = float(1 << 62)


class RankReport(NamedTuple):
    """A rank's observation, as numbers that fit into a row of the file. -1: unknown."""

    interval_ns: float
    stall: float
    workers: int
    busy: float
    waits: float
    """Share of the steps."""
    blocked: float
    """Share of the waits."""
    cpu_ns: float
    off_ns: float
    runq_ns: float
    used_cpus: float
    """CPUs that this rank kept busy, workers included."""
    room_bytes: int
    worker_bytes: int
    warm_up: bool

    @classmethod
    def of(cls, observation: Observation) -> RankReport:
        """The report of an observation."""
        wall_ns = max(1, observation.wall_ns)
        used_ns = observation.cpu_ns * observation.steps + (observation.own_cpu_ns or 0)
        return cls(
            interval_ns=observation.interval_ns,
            stall=observation.stall,
            workers=observation.workers,
            busy=-1.0 if observation.busy is None else observation.busy,
            waits=observation.waits / max(1, observation.steps),
            blocked=observation.blocked / max(1, observation.waits),
            cpu_ns=observation.cpu_ns,
            off_ns=observation.off_ns,
            runq_ns=observation.runq_ns,
            used_cpus=used_ns / wall_ns,
            room_bytes=-1 if observation.room_bytes is None else observation.room_bytes,
            worker_bytes=-1 if observation.worker_bytes is None else observation.worker_bytes,
            warm_up=observation.warm_up,
        )

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> RankReport:
        """From the floats of a row, in the order of the fields. Raises ValueError for numbers that no rank writes."""
        if not all(-1.0 <= each <= _MOST for each in numbers):
            raise ValueError("a number that is negative, too large, or none")
        (
            interval_ns,
            stall,
            workers,
            busy,
            waits,
            blocked,
            cpu_ns,
            off_ns,
            runq_ns,
            used,
            room,
            size,
            warm_up,
        ) = numbers
        counts = int(room), int(size), bool(warm_up)
        return cls(
            interval_ns, stall, int(workers), busy, waits, blocked, cpu_ns, off_ns, runq_ns, used, *counts
        )


def combined(observation: Observation, others: Sequence[RankReport]) -> Observation:
    """The leader's observation, with the values of the other ranks that it needs.

    Ranks wait for each other in every step, so they have one interval; if they do not, the mean of all counts. The wait is that
    of the rank that waits most, with its causes. CPU time of the other ranks is no foreign load, because it follows from the
    decision.
    """
    if not others:
        return observation
    rooms = [each.room_bytes for each in others if each.room_bytes >= 0]
    sizes = [each.worker_bytes for each in others if each.worker_bytes >= 0]
    if observation.room_bytes is not None:
        rooms.append(observation.room_bytes)
    if observation.worker_bytes is not None:
        sizes.append(observation.worker_bytes)
    foreign = observation.foreign_cpus
    if foreign is not None:
        foreign = max(0.0, foreign - sum(each.used_cpus for each in others))
    interval_ns = (observation.interval_ns + sum(each.interval_ns for each in others)) / (1 + len(others))
    wall_ns = int(interval_ns * observation.steps)
    whole = replace(
        observation,
        wall_ns=wall_ns,
        wait_ns=int(observation.stall * wall_ns),
        room_bytes=min(rooms) if rooms else None,
        worker_bytes=max(sizes) if sizes else None,
        foreign_cpus=foreign,
        warm_up=observation.warm_up or any(each.warm_up for each in others),
    )
    worst = max(others, key=lambda each: each.stall)
    return whole if worst.stall <= observation.stall else _as_seen_by(whole, worst)


def _as_seen_by(observation: Observation, worst: RankReport) -> Observation:
    waits = round(worst.waits * observation.steps)
    mine_ns = observation.making_ns + observation.runq_ns
    its_ns = worst.cpu_ns + worst.off_ns + worst.runq_ns
    longer = its_ns / mine_ns if mine_ns > 0 and its_ns > 0 else 1.0
    return replace(
        observation,
        wait_ns=int(min(1.0, worst.stall) * observation.wall_ns),
        busy=None if worst.busy < 0 else worst.busy,
        waits=waits,
        blocked=round(worst.blocked * waits),
        cpu_ns=worst.cpu_ns,
        off_ns=worst.off_ns,
        runq_ns=worst.runq_ns,
        batch_ns=tuple(int(each * longer) for each in observation.batch_ns),
    )
