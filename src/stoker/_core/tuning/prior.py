"""What can be said before a race: how many workers the demand needs, the machine can keep at work, and there may be.

From one worker's measured batches, by replaying them: the race then has to tell apart a few settings and not all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stoker._core.finding import counted, size
from stoker._core.tuning.replay import Replayed, replay
from stoker._core.tuning.setting import Setting
from stoker._core.tuning.work import Demand, Host, Work

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""Workers that are replayed: finer than this, nobody can measure."""
LARGE = 32
"""Workers that compute, at most: beyond it they wait for memory and for the training process more than they add."""
WAITING = 64
"""Workers that wait, at most; a process each is a dear way to wait."""
PREFETCHES = (1, 2, 3, 4, 6, 8, 12, 16)
SLEEPY = 0.5
"""Of a batch's time off the CPU: more of it, and workers can be more than CPUs."""
STALL = 0.005
_RHO = 0.85
_UNEVEN_RHO = 0.7
_UNEVEN = 0.5
_MEMORY_SHARE = 4
"""A quarter of the room for batches that wait, another one for workers."""
_DESCRIPTORS = 4
_BATCHES = 192


@dataclass(frozen=True, slots=True)
class Prior:
    """``most`` workers may be; ``most_reason`` says why not more, in words."""

    batch_ns: float
    """What a batch takes a worker that has a CPU whenever it wants one, hand-over included (S)."""
    need: int | None
    """Workers that the demand needs; None: it is not known, so as many as help."""
    knee: int | None
    """Workers that the CPUs can keep at work; None: they hardly use one."""
    most: int
    most_reason: str
    predicted: dict[int, float]
    """Time between two batches by workers, replayed; 0: none."""

    @property
    def first(self) -> int:
        """The fewest workers, at least one, that are predicted to be as good as any."""
        some = {count: ns for count, ns in self.predicted.items() if count}
        best = min(some.values())
        return min(count for count, ns in some.items() if ns <= best * 1.02)


def prior(host: Host, work: Work, demand: Demand, *, batches: int | None = None) -> Prior:
    """Of a work with at least one batch."""
    whole_ns = work.typical_ns + work.handover_ns
    cpu_ns = work.typical_cpu_ns
    most, reason = most_workers(host, work, batches=batches)
    need = None
    if demand.step_ns:
        rho = _UNEVEN_RHO if work.variation > _UNEVEN else _RHO
        need = max(1, math.ceil(whole_ns * max(1, demand.burst) / (rho * demand.step_ns)))
    share = min(1.0, demand.cpu_ns / demand.step_ns) if demand.step_ns else 0.0
    knee = None
    if cpu_ns > 0.02 * whole_ns:
        knee = max(1, math.floor(max(1.0, host.cpus - share) * whole_ns / cpu_ns))
    counts = [count for count in COUNTS if count <= most] or [1]
    predicted = {0: predict(Setting(0), host, work, demand).interval_ns}
    for count in counts:
        predicted[count] = predict(Setting(count, prefetch=2), host, work, demand).interval_ns
        if _is_flat(predicted, count):
            break
    return Prior(whole_ns, need, knee, most, reason, predicted)


def predict(setting: Setting, host: Host, work: Work, demand: Demand) -> Replayed:
    """The replay of a setting on this host. Of a stoker's loader, which splits batches where it pays, as of whole ones."""
    return replay(
        work,
        demand,
        workers=setting.workers,
        window=max(setting.window, demand.burst),
        cpus=host.cpus,
        threads=setting.threads,
        executor=setting.executor if setting.workers else "inline",
        batches=max(_BATCHES, 6 * setting.workers),
    )


def most_workers(host: Host, work: Work | None, *, batches: int | None = None) -> tuple[int, str]:
    """How many there may be, and what bounds them."""
    sleepy = work is not None and work.off_share > SLEEPY
    bounds: list[tuple[int, str]] = []
    if sleepy:
        bounds.append((WAITING, "a process each is a dear way to wait"))
    elif work is None:
        bounds.append((safe_workers(host), f"{host.reason or 'the CPUs'}"))
    else:
        far = max(2, math.ceil(1.5 * host.cpus / max(0.1, 1 - work.off_share)))
        bounds.append((far, f"{counted(round(host.cpus), 'CPU')} for this rank and work that computes"))
        bounds.append((LARGE, "beyond it memory bandwidth and the training process are the limit"))
    if work is not None and work.parent_ns > 0:
        enough = math.ceil(1.5 * (work.typical_ns + work.handover_ns) / work.parent_ns)
        bounds.append((max(2, enough), "the training process takes over no more batches than these make"))
    if host.room_bytes is not None:
        each = ((work and work.worker_bytes) or (64 << 20)) + 2 * (work.batch_bytes if work else 0)
        bounds.append((host.room_bytes // 2 // max(1, each), f"each takes {size(each)} of memory"))
    if host.descriptors is not None:
        bounds.append(((host.descriptors - 128) // _DESCRIPTORS, "each takes descriptors"))
    if batches is not None:
        bounds.append((batches, f"an epoch has {counted(batches, 'batch', 'batches')}"))
    most, reason = min(bounds, key=lambda each: each[0])
    return max(1, most), reason


def safe_workers(host: Host) -> int:
    """Where nothing was measured: a CPU for the training process, the others for workers."""
    return max(1, min(LARGE // 2, math.floor(host.cpus) - 1))


def window_for(setting: Setting, host: Host, work: Work, demand: Demand) -> Setting:
    """The setting with the shallowest window that gains nothing by being deeper, within a quarter of the memory there is."""
    if not setting.workers:
        return replace(setting, prefetch=None)
    room = host.room_bytes // _MEMORY_SHARE if host.room_bytes is not None else None
    least = math.ceil((demand.burst + setting.workers) / setting.workers) if demand.burst > 1 else 2
    allowed = [
        each
        for each in PREFETCHES
        if each >= min(least, PREFETCHES[-1])
        and (
            room is None or each * setting.workers * max(1, work.batch_bytes) <= room or each == PREFETCHES[0]
        )
    ] or [1]
    tried = [(each, predict(replace(setting, prefetch=each), host, work, demand)) for each in allowed]
    best_ns = min(told.interval_ns for _, told in tried)
    for each, told in tried:
        if told.interval_ns <= best_ns * (1 + STALL):
            return replace(setting, prefetch=each)
    return replace(setting, prefetch=allowed[-1])


def _is_flat(predicted: dict[int, float], count: int) -> bool:
    """Whether the last doubling of workers gained nothing: no use in going on."""
    before = [ns for each, ns in predicted.items() if 0 < each <= count / 2]
    return len(before) > 1 and predicted[count] > 0.99 * min(before) and count >= 4


def nearest(counts: Iterable[int], wanted: float) -> int:
    """Of these, the one closest to a number."""
    return min(counts, key=lambda each: (abs(each - wanted), each))
