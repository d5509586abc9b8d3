"""Predicts from measured times what another number of workers would change, or says why it cannot. Pure.

A batch takes a worker ``batch_s``, of which it computes ``cpu_s``; the training loop takes ``step_s`` for a step, and computes
``parent_s`` for it. N workers make a batch every ``batch_s / N``, unless all CPUs together need longer for a batch and its step:
the slowest of these is the pace. Processes of others take their turns at the CPUs like one of ours: where all are busy, the
scheduler divides the CPUs among all that want them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoker._record.causes.causes import Causes
from stoker._record.causes.contention import active_threads, foreign_cpus, parent_cpu_ns
from stoker._record.finding import Gain, counted, duration
from stoker._record.schema import LoaderRecord, Machine

_HEADROOM = 0.85
"""How busy workers may be before chance alone makes batches late."""
_MOST_WORKERS = 32
_PER_CPU = 4
"""Workers that wait rather than compute: four for each CPU, and never more than 32 in all, is where the classic advice ends."""
_SCRAP = 0.3
"""So much of a CPU is not worth another worker."""
_LEAST_CPUS = 0.5
_EXPLAINED = 0.5
"""The pace at the present number of workers has to explain this much of the wait, else nothing is extrapolated from it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds per batch, from the record of one loader."""

    workers: int
    batch_s: float
    cpu_s: float
    step_s: float
    wait_s: float
    """That costs time, and is not for the record."""
    whole_s: float
    """All of it, recording included: what a gain is a share of, as the wait is."""
    cpus: float | None
    """That this job may use: less those that others have beyond it."""
    parent_s: float = 0.0
    """CPU time of the training process for a step. It is the same however often steps come."""
    foreign: float = 0.0
    """CPUs that others use."""

    def bound_s(self, workers: int) -> float:
        """Seconds between two batches that so many workers can keep up. 0: the training process makes them between steps."""
        if workers == 0:
            return self.step_s + self.batch_s
        pace_s = self.batch_s / workers
        cpus = self.share_of_cpus(workers)
        return max(pace_s, (self.cpu_s + self.parent_s) / cpus) if cpus else pace_s

    def share_of_cpus(self, workers: int) -> float | None:
        """CPUs that so many workers and the training process get beside the others. None: not known."""
        if self.cpus is None:
            return None
        wanted = workers * (self.cpu_s / self.batch_s if self.batch_s else 1.0) + min(
            1.0, self.parent_s / self.step_s
        )
        if wanted + self.foreign <= self.cpus:
            return self.cpus
        return max(_LEAST_CPUS, self.cpus - self.foreign, self.cpus * wanted / (wanted + self.foreign))


def pace(loader: LoaderRecord, machine: Machine, causes: Causes) -> Pace | None:
    """None when there are no steps to go by: a run that was killed at its first batch has none."""
    totals = loader.totals
    if not totals.steps or not totals.step_ns or not causes.wait_ns:
        return None
    scale = 1e9 * totals.steps
    busy_ns = sum(each.busy_ns for each in loader.workers)
    count = sum(1 for each in loader.workers if each.busy_ns and each.worker >= 0)
    if not loader.kind.workers or not busy_ns:
        busy_ns = causes.wait_ns
        count = 0
    metered_ns = sum(each.metered_ns for each in loader.workers)
    used_ns = sum(each.cpu_ns * active_threads(each) for each in loader.workers)
    cpu_share = used_ns / metered_ns if metered_ns else causes.share("compute", "bandwidth")
    spare = 0 if machine.usable is None else max(0, (machine.cpus or machine.usable) - machine.usable)
    return Pace(
        workers=count,
        batch_s=busy_ns / scale,
        cpu_s=busy_ns * cpu_share / scale,
        step_s=totals.step_ns / scale,
        wait_s=causes.exposed_ns / scale,
        whole_s=(causes.wait_ns + totals.step_ns) / scale,
        cpus=None if machine.usable is None else float(machine.usable),
        parent_s=parent_cpu_ns(loader) / scale,
        # CPUs that this job may not use are where others are first.
        foreign=max(0.0, (foreign_cpus(loader.load) or 0.0) - spare),
    )


def wanted_workers(now: Pace, *, most: int) -> int:
    """Return how many workers keep up with the training loop, with some to spare where that helps.

    At most ``most``, and no more than the CPUs can feed.
    """
    enough = math.ceil(now.batch_s / (_HEADROOM * now.step_s)) if now.step_s > 0 else most
    if now.cpus and now.cpu_s > 0:
        # One more than fills the CPUs is of use, if it has a good part of one to itself. In the time of a batch that uses all
        # CPUs, the training process needs its own part of them.
        left = now.cpus * now.cpu_s / (now.cpu_s + now.parent_s)
        most = min(most, max(1, math.ceil(left * now.batch_s / now.cpu_s - _SCRAP)))
    return max(1, min(enough, most))


def most_workers(machine: Machine, *, waiting: bool) -> int | None:
    """The most that make sense: for samples that wait, several for each CPU; for those that compute, one. None: not known."""
    if machine.usable is None:
        return None
    return min(_MOST_WORKERS, machine.usable * (_PER_CPU if waiting else 1))


def gain_of_pace(now: Pace, then: Pace, share: float, how: str) -> Gain:
    """What another pace with the same workers would save; ``share`` of the wait is what the pace can change."""
    open_s = now.wait_s * share
    short_s = now.bound_s(now.workers) - now.step_s
    if short_s < _EXPLAINED * open_s or not now.whole_s:
        return Gain(None, "unknown: the workers are not always busy, so their work does not set the pace")
    left_s = max(0.0, then.bound_s(then.workers) - then.step_s) * min(1.0, open_s / short_s)
    return Gain(max(0.0, open_s - left_s) / now.whole_s, how)


def gain_of_workers(now: Pace, workers: int, share: float) -> Gain:
    """What so many workers would save; ``share`` of the wait is what their number can change."""
    open_s = now.wait_s * share
    short_s = now.bound_s(now.workers) - now.step_s
    if short_s < _EXPLAINED * open_s:
        return Gain(None, "unknown: the workers are not always busy, so their number does not set the pace")
    left_s = max(0.0, now.bound_s(workers) - now.step_s) * min(1.0, open_s / short_s)
    saved = max(0.0, open_s - left_s) / now.whole_s
    how = (
        f"{duration(now.batch_s)} per batch over {counted(workers, 'worker')} is one every {duration(now.bound_s(workers))}, "
        f"and a step takes {duration(now.step_s)}"
    )
    return Gain(saved, how)
