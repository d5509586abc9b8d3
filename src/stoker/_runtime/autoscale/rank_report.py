"""Several ranks as one: what the policy is told when it decides for all loaders of a job on this machine. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stoker._runtime.autoscale.types import Observation


class RankReport(NamedTuple):
    """A rank's window, in numbers that fit into a row of the page. -1: not known."""

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
    """That this rank kept busy, workers included."""
    room_bytes: int
    worker_bytes: int
    warm_up: bool

    @classmethod
    def of(cls, window: Observation) -> RankReport:
        """The window in short."""
        wall_ns = max(1, window.wall_ns)
        used_ns = window.cpu_ns * window.steps + (window.own_cpu_ns or 0)
        return cls(
            interval_ns=window.interval_ns,
            stall=window.stall,
            workers=window.workers,
            busy=-1.0 if window.busy is None else window.busy,
            waits=window.waits / max(1, window.steps),
            blocked=window.blocked / max(1, window.waits),
            cpu_ns=window.cpu_ns,
            off_ns=window.off_ns,
            runq_ns=window.runq_ns,
            used_cpus=used_ns / wall_ns,
            room_bytes=-1 if window.room_bytes is None else window.room_bytes,
            worker_bytes=-1 if window.worker_bytes is None else window.worker_bytes,
            warm_up=window.warm_up,
        )

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> RankReport:
        """From what a row holds: all of it as floats, in this order."""
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


def gathered(window: Observation, others: Sequence[RankReport]) -> Observation:
    """The window of the rank that decides, with what it has to know of the others.

    Ranks wait for each other in every step, so the interval is everybody's; where they do not, the mean of all is what should
    become shorter. The wait is that of the rank which waits most, with its reasons. What the other ranks compute is no foreign
    load: it changes with what is decided here.
    """
    if not others:
        return window
    rooms = [each.room_bytes for each in others if each.room_bytes >= 0]
    sizes = [each.worker_bytes for each in others if each.worker_bytes >= 0]
    if window.room_bytes is not None:
        rooms.append(window.room_bytes)
    if window.worker_bytes is not None:
        sizes.append(window.worker_bytes)
    foreign = window.foreign_cpus
    if foreign is not None:
        foreign = max(0.0, foreign - sum(each.used_cpus for each in others))
    interval_ns = (window.interval_ns + sum(each.interval_ns for each in others)) / (1 + len(others))
    wall_ns = int(interval_ns * window.steps)
    whole = replace(
        window,
        wall_ns=wall_ns,
        wait_ns=int(window.stall * wall_ns),
        room_bytes=min(rooms) if rooms else None,
        worker_bytes=max(sizes) if sizes else None,
        foreign_cpus=foreign,
        warm_up=window.warm_up or any(each.warm_up for each in others),
    )
    worst = max(others, key=lambda each: each.stall)
    return whole if worst.stall <= window.stall else _as_seen_by(whole, worst)


def _as_seen_by(window: Observation, worst: RankReport) -> Observation:
    waits = round(worst.waits * window.steps)
    mine_ns = window.making_ns + window.runq_ns
    its_ns = worst.cpu_ns + worst.off_ns + worst.runq_ns
    longer = its_ns / mine_ns if mine_ns > 0 and its_ns > 0 else 1.0
    return replace(
        window,
        wait_ns=int(min(1.0, worst.stall) * window.wall_ns),
        busy=None if worst.busy < 0 else worst.busy,
        waits=waits,
        blocked=round(worst.blocked * waits),
        cpu_ns=worst.cpu_ns,
        off_ns=worst.off_ns,
        runq_ns=worst.runq_ns,
        batch_ns=tuple(int(each * longer) for each in window.batch_ns),
    )
