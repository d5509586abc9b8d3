"""Predictions before a race: the workers that the demand needs, that fill the machine, and that are allowed.

They come from a replay of one worker's measured batches. So the race has to compare a few settings only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stoker._record.finding import counted
from stoker._runtime.simulation import limits
from stoker._runtime.simulation.predictions import SimulationCase, prefetch_for
from stoker._runtime.simulation.replay import SimulationResult, replay_setting
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune import knobs
from stoker._tools.tune.knobs.num_workers import COUNTS

SLEEPY = 0.5
"""Share of a batch's time off the CPU. If it is larger, more workers than CPUs help."""
WAITING = 64
_WAITING_LEAST = 16
_WAITING_CPUS = 4
"""Bounds for the number of workers that mostly wait: per CPU, at least and at most. A process is an expensive way to wait."""
BEYOND = 1.5
"""How far beyond the useful number a race may look, because one worker's measurements do not show everything."""
SAFE = 16
NEAR = 1.02
_DEEPER = 0.03
_BATCHES = 192


@dataclass(frozen=True, slots=True)
class Prior:
    """``most`` workers help by what is known, for ``most_reason``. The race may try up to ``edge``."""

    batch_ns: float
    """A worker's time for a batch if it always has a CPU (S)."""
    need: int | None
    """Workers that the demand needs; None: unknown, so as many as help."""
    knee: int | None
    """Workers that fill the CPUs; None: they use none."""
    most: int
    most_reason: str
    edge: int
    predicted: dict[int, float]
    """The predicted time between two batches by number of workers; 0: without workers."""

    @property
    def first(self) -> int:
        """The fewest workers, at least one, that are predicted to be as good as any."""
        some = {count: ns for count, ns in self.predicted.items() if count}
        best = min(some.values())
        return min(count for count, ns in some.items() if ns <= best * NEAR)


def prior(host: Host, work: Work, demand: Demand, *, batches: int | None = None) -> Prior:
    """The predictions for a work with at least one batch."""
    most = limits.most(work, host, demand)
    reason = most.reason
    edge = max(most.workers + 1, math.ceil(BEYOND * most.workers))
    if work.off_share > SLEEPY:
        usual = max(_WAITING_LEAST, _WAITING_CPUS * math.ceil(host.cpus), limits.need(work, demand) or 0)
        edge = min(WAITING, edge, usual)
        if edge < most.workers:
            reason = (
                f"{counted(edge, 'process', 'processes')} are an expensive way to wait on {host.cpus:g} CPUs"
            )
    else:
        edge = min(edge, limits.LAST_RESORT)
    if most.name in ("room", "descriptors"):
        edge = most.workers
    if batches is not None and batches < edge:
        edge, reason = max(1, batches), f"an epoch has {counted(batches, 'batch', 'batches')}"
    predicted = {0: predict(Setting(0), host, work, demand).interval_ns}
    for count in COUNTS:
        if count > edge:
            break
        predicted[count] = predict(Setting(count, prefetch=2), host, work, demand).interval_ns
        if _is_flat(predicted, count):
            break
    return Prior(
        work.typical_ns,
        limits.need(work, demand),
        limits.knee(work, host, demand),
        min(most.workers, edge),
        reason,
        edge,
        predicted,
    )


def predict(
    setting: Setting, host: Host, work: Work, demand: Demand, *, hopeful: bool = False
) -> SimulationResult:
    """Replay a setting on this host. Each knob first says what the work becomes with its value.

    ``hopeful``: use the work as measured, without the knobs' caution. It finds the number of threads that are worth a trial.
    """
    if not hopeful:
        for knob in knobs.KNOBS:
            work = knob.replayed_work(setting, host, work)
    return replay_setting(work, demand, setting, host.cpus, batches=max(_BATCHES, 6 * setting.workers))


def safe_workers(host: Host) -> int:
    """The number of workers if nothing was measured: one CPU for the training process, the others for workers."""
    return max(1, min(SAFE, math.floor(host.cpus) - 1))


def window_for(setting: Setting, host: Host, work: Work, demand: Demand) -> Setting:
    """The setting with the window that the replay predicts to be enough, within a quarter of the memory.

    It is at least the usual two batches per worker, because one worker's measurements show no slow moments. Without a demand it
    is deeper only if that gains much.
    """
    if not setting.workers:
        return replace(setting, prefetch=None)
    wanted = prefetch_for(SimulationCase(setting, host.cpus, demand), work, room_bytes=host.room_bytes)
    usual = replace(setting, prefetch=2)
    if wanted < 2 and (host.room_bytes is None or 8 * setting.workers * work.batch_bytes <= host.room_bytes):
        return usual
    deeper = replace(setting, prefetch=wanted)
    if wanted > 2 and not demand.step_ns and demand.burst < 2:
        gained = (
            predict(deeper, host, work, demand).interval_ns / predict(usual, host, work, demand).interval_ns
        )
        if gained > 1 - _DEEPER:
            return usual
    return deeper


def _is_flat(predicted: dict[int, float], count: int) -> bool:
    """Whether the last doubling of workers gained nothing, so that larger numbers need no replay."""
    before = [ns for each, ns in predicted.items() if 0 < each <= count / 2]
    return count >= 4 and len(before) > 1 and predicted[count] > 0.99 * min(before)
