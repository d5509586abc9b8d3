"""The regime: the kind of work, and where a result for it does not hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stoker._record.finding import counted, duration
from stoker._runtime.simulation.limits import LAST_RESORT, knee, limits, need
from stoker._runtime.simulation.point import Point
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker.arguments import DEFAULT_EXECUTOR, executor_kind

WAITS = 0.5
COMPUTES = 0.2
"""Shares of a batch's time off the CPU. Above the first it waits, below the second it computes, in between it does both."""

COLD = 1.5
"""A batch that takes this much longer the first time than again waits for storage."""

LOCKED = 1.2
"""Two threads that are no faster than this together hold the GIL."""

DEARER = 1.3
"""CPU time per batch that grows by this much with workers is waiting for memory: bandwidth, caches or SMT."""

SYNTHETIC_OFF = 0.95
SYNTHETIC_VARIATION = 0.1
"""Work that waits for more than the first share and varies by less than the second is probably a ``sleep`` in a test."""

FEW_BATCHES = 16
STARVED = 0.2


class Regime(NamedTuple):
    """``name`` is "sleep", "storage", "compute", "gil", "parent", "memory" or "mixed"."""

    name: str
    sentence: str
    warnings: tuple[str, ...]


def regime(
    work: Work,
    host: Host,
    demand: Demand | None = None,
    *,
    points: Iterable[Point] = (),
    executor: str = DEFAULT_EXECUTOR,
    runq_share: float | None = None,
) -> Regime:
    """The regime from the measured work and, if there are any, ``points``. ``executor`` runs the work.

    ``runq_share`` is the share of their time in which workers were ready to run and had no CPU.
    """
    demand = demand or Demand(0)
    name, sentence = _named(work, host, demand, tuple(points), executor)
    return Regime(name, sentence, tuple(_warnings(name, work, demand, runq_share)))


def _named(
    work: Work, host: Host, demand: Demand, points: tuple[Point, ...], executor: str
) -> tuple[str, str]:
    shared = _shared(work, host, demand)
    if shared is not None:
        return shared
    off = work.off_share
    if off > WAITS:
        return _waiting(work, off)
    locked = work.threads_gain is not None and work.threads_gain < LOCKED and host.gil
    if locked and executor_kind(executor).threads:
        gain = f"two threads were {work.threads_gain:.2g} times as fast as one"
        return "gil", f"samples are computed under the GIL ({gain}): threads take turns, processes do not"
    growth = _growth(points, host, 2 * work.typical_cpu_ns)
    if off < COMPUTES and growth is not None and growth > DEARER:
        return (
            "memory",
            f"a batch takes {growth:.2g} times the CPU time with more workers: they wait for memory that cores share",
        )
    held = "; it holds the GIL, so threads would take turns" if locked else ""
    if off < COMPUTES:
        return (
            "compute",
            f"batches compute for {1 - off:.0%} of their time: workers beyond the CPUs take turns{held}",
        )
    return (
        "mixed",
        f"batches wait for {off:.0%} of their time and compute for the rest: workers fill each other's waits{held}",
    )


def _shared(work: Work, host: Host, demand: Demand) -> tuple[str, str] | None:
    """The training process or memory, if one of them is the limit as soon as there are enough workers."""
    counts = [each for each in (need(work, demand), knee(work, host, demand)) if each is not None]
    count = min([*counts, LAST_RESORT])
    found = {each.name: each for each in limits(work, host, Demand(0), workers=count)}
    others_ns = max(each.interval_ns for name, each in found.items() if name not in ("parent", "memory"))
    for name in ("parent", "memory"):
        limit = found.get(name)
        if limit is not None and limit.interval_ns > others_ns:
            return name, f"{limit.sentence}, however many workers there are"
    return None


def _waiting(work: Work, off: float) -> tuple[str, str]:
    cold_ns, warm_ns = work.cold_ns, work.warm_ns
    if cold_ns is not None and warm_ns is not None and cold_ns > COLD * warm_ns:
        times = f"{duration(cold_ns / 1e9)} the first time, {duration(warm_ns / 1e9)} again"
        return (
            "storage",
            f"batches wait for storage ({times}): more readers at once help until it is at its limit",
        )
    same = (
        " and no less when the same samples are read again"
        if cold_ns is not None and warm_ns is not None
        else ""
    )
    return (
        "sleep",
        f"batches wait for {off:.0%} of their time{same}: sleep, a lock or a network. Workers help past the CPUs",
    )


def _growth(points: tuple[Point, ...], host: Host, most_ns: float) -> float | None:
    """CPU time per batch with the most workers that have a CPU each, relative to that with the fewest.

    None if even these take more than ``most_ns``: the limit is then the hand-over of batches, not their making.
    """
    by_count = sorted(
        (each.setting.workers, each.cpu_ns)
        for each in points
        if 0 < each.setting.workers <= host.cpus and each.cpu_ns > 0 and not each.failure
    )
    if len(by_count) < 2 or by_count[-1][0] < 2 * by_count[0][0] or by_count[0][1] > most_ns:
        return None
    return by_count[-1][1] / by_count[0][1]


def _warnings(name: str, work: Work, demand: Demand, runq_share: float | None) -> Iterable[str]:
    off = work.off_share
    if name == "sleep" and off > SYNTHETIC_OFF and work.variation < SYNTHETIC_VARIATION:
        yield (
            "All of this is waiting, and evenly so, as with time.sleep. If it stands in for decoding, the result does not carry "
            "over: decoding computes, and workers beyond the CPUs would take turns."
        )
    if name != "sleep" and work.read_bytes == 0:
        yield (
            "Nothing was read from storage meanwhile: samples came from memory or the page cache. A dataset larger than memory, or "
            "a first epoch, is slower than this."
        )
    elif name == "storage":
        yield "Files that were read are now in the page cache: a dataset that fits into memory waits less from the second epoch on."
    if demand.source == "step-ms" and demand.step_ns and name in ("compute", "mixed", "memory"):
        yield (
            "The step was assumed to wait for an accelerator. One that computes on the CPU takes it from workers: measure "
            "it with --step module:function."
        )
    if 0 < len(work.batch_ns) < FEW_BATCHES:
        few = counted(len(work.batch_ns), "batch", "batches")
        yield f"Only {few} could be measured: slow ones may be missing."
    if runq_share is not None and runq_share > STARVED:
        yield (
            f"Workers had no CPU for {runq_share:.0%} of the time they could have run: other programs use the CPUs, and "
            "without these another number of workers may be right."
        )
