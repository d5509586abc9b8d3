"""Which settings are worth a race: the baseline and at most five more; and afterwards those next to the best one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.model.prior import COUNTS, NEAR, SLEEPY, Prior, predict, window_for

MOST = 6
INLINE_NS = 2_000_000
"""A batch that takes less than this may be made faster than it is handed over."""
_NEAR = 1.6
"""No workers at all are tried where they are predicted to take up to this much longer than the best."""
_THREADS_DO = 1.6
"""Two threads that make samples this much faster than one: the GIL is no matter."""
_MOST_THREADS = 16
_GAINS = 0.97
_LONG_NS = 30_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may not be chosen, of a target."""

    threads: bool = True
    """Whether the dataset may be used from several threads at once: not a stream."""
    workers: bool = True
    """Whether there may be any: False in a process that may have no children."""
    most: int | None = None
    """Workers, because the target is like that: an unsharded stream has one."""
    start_method: str | None = None
    """How workers have to be started, where the target's own way does not work."""


def first(
    baseline: Setting, host: Host, work: Work, demand: Demand, known: Prior, bounds: Bounds
) -> tuple[Setting, ...]:
    """The baseline first. All with a window that the replay asks for."""
    most = min(known.edge, bounds.most if bounds.most is not None else known.edge)
    own = Setting(start_method=bounds.start_method or baseline.start_method, pin=baseline.pin)
    found: list[Setting] = []
    if bounds.workers:
        middle = min(known.first, most)
        counts = _around(middle, most)
        found += [replace(own, workers=count) for count in counts[:1]]
        found += _other_executors(own, host, work, demand, most, bounds)
        found += [replace(own, workers=count) for count in counts[1:]]
    best_ns = min(known.predicted.values())
    if (
        not baseline.workers
        or known.batch_ns < INLINE_NS
        or known.predicted[0] <= _NEAR * best_ns
        or not found
    ):
        found.insert(1, replace(own, start_method=None))
    settled = [window_for(each, host, work, demand) for each in found]
    return _distinct(baseline, settled)[:MOST]


def around(
    best: Setting,
    tried: Collection[Setting],
    host: Host,
    work: Work,
    demand: Demand,
    known: Prior,
    bounds: Bounds,
) -> tuple[Setting, ...]:
    """What lies next to the best setting and was not tried: more and fewer workers first, then what refines it. At most three."""
    most = min(known.edge, bounds.most if bounds.most is not None else known.edge)
    found: list[Setting] = []
    if not best.workers:
        if bounds.workers:
            found.append(Setting(1, prefetch=2, pin=best.pin))
    else:
        alike = [each for each in tried if _kin(each, best)]
        counts = {each.workers for each in alike}
        found += [
            window_for(replace(best, workers=count, engine="stoker"), host, work, demand)
            for count in _outwards(best.workers, counts, most, sleepy=work.off_share > SLEEPY)
        ]
        if bounds.threads and work.off_share > SLEEPY:
            found += _more_hands(best, host, work, demand, most)
        found += _refined(best, host, work)
    new = [each for each in _distinct(best, found)[1:] if not any(_same(each, other) for other in tried)]
    return tuple(new[:3])


def _other_executors(
    own: Setting, host: Host, work: Work, demand: Demand, most: int, bounds: Bounds
) -> list[Setting]:
    """Threads where they can do it: waits, native code, or no GIL."""
    if not bounds.threads:
        return []
    found = []
    sleepy = work.off_share > SLEEPY
    gain = work.threads_gain or 1.0
    if sleepy or gain > _THREADS_DO or not host.gil:
        threads = replace(own, executor="thread", start_method=None)
        found.append(_enough(threads, max(2 * most, 2), host, work, demand))
    if sleepy and work.rows >= 4:
        hands = replace(own, threads=min(_MOST_THREADS, work.rows))
        found.append(_enough(hands, max(1, min(most, 2 * math.ceil(host.cpus))), host, work, demand))
    return found


def _enough(setting: Setting, most: int, host: Host, work: Work, demand: Demand) -> Setting:
    """The setting with the fewest workers that are predicted to be as good as any. Of threads alone: if the GIL were no matter."""
    hopeful = setting.executor == "thread"
    predicted = {
        count: predict(
            replace(setting, workers=count, prefetch=2), host, work, demand, hopeful=hopeful
        ).interval_ns
        for count in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
        if count <= most
    }
    best_ns = min(predicted.values())
    return replace(setting, workers=min(count for count, ns in predicted.items() if ns <= NEAR * best_ns))


def _around(middle: int, most: int) -> list[int]:
    """The middle, then one below and one above: as far apart as can be measured."""
    step = max(1, round(middle * 0.35))
    counts = [
        middle,
        *(
            min(COUNTS, key=lambda count: (abs(count - each), count))
            for each in (middle - step, middle + step)
        ),
    ]
    counts = [min(most, each) for each in counts]
    if middle == 1:
        counts += [min(most, 3)]
    return list(dict.fromkeys(counts))


def _outwards(count: int, tried: Iterable[int], most: int, *, sleepy: bool) -> list[int]:
    """Beyond the edge of what was tried; within it, the nearest that were left out."""
    known = sorted({*tried, count})
    found = []
    if count == known[-1]:
        found.append(min(most, count * 2 if sleepy else count + max(1, round(count / 3))))
    else:
        above = next(each for each in known if each > count)
        if above - count > max(1, count // 4):
            found.append((above + count) // 2)
    if count == known[0]:
        found.append(max(1, count - max(1, round(count / 3))))
    else:
        below = max(each for each in known if each < count)
        if count - below > max(1, count // 4):
            found.append((count + below + 1) // 2)
    rounded = [
        each if each <= 2 else min(COUNTS, key=lambda count: (abs(count - each), count)) for each in found
    ]
    return [each for each in dict.fromkeys(rounded) if each not in known and each <= most]


def _more_hands(best: Setting, host: Host, work: Work, demand: Demand, most: int) -> list[Setting]:
    """Where samples are waited for and threads may do it: processes with threads, of which more wait at once than of the best."""
    lanes = min(_MOST_THREADS, work.rows)
    plain = replace(best, executor="process", threads=lanes, engine="stoker", split=None)
    few = max(1, math.floor(host.cpus))
    wider = [replace(plain, workers=count) for count in (few, 2 * few, 4 * few) if count <= max(most, few)]
    found = [each for each in wider if each.concurrency > best.concurrency][:1]
    best_ns = predict(best, host, work, demand).interval_ns
    return [
        window_for(each, host, work, demand)
        for each in found
        if predict(each, host, work, demand).interval_ns < _GAINS * best_ns
    ]


def _refined(best: Setting, host: Host, work: Work) -> list[Setting]:
    found = []
    if best.threads > 1:
        more = min(2 * best.threads, work.rows, 2 * _MOST_THREADS)
        found.append(replace(best, threads=more))
    room = host.room_bytes
    deeper = 2 * (best.prefetch or 2)
    if deeper <= 16 and (room is None or deeper * best.workers * max(1, work.batch_bytes) <= room // 4):
        found.append(replace(best, prefetch=deeper, engine="stoker"))
    whole = best.split is None and best.executor == "process" and best.threads == 1 and best.workers > 1
    if whole and work.rows > 1 and work.typical_ns > _LONG_NS:
        found.append(replace(best, split=False, engine="stoker", prefetch=best.prefetch or 2))
    if host.accelerator and not best.pin:
        found.append(replace(best, pin=True))
    return found


def _kin(one: Setting, other: Setting) -> bool:
    return (one.executor, one.threads, bool(one.workers)) == (
        other.executor,
        other.threads,
        bool(other.workers),
    )


def _same(one: Setting, other: Setting) -> bool:
    """Whether two settings run alike: a window that is left open starts as one of 2 a worker."""
    if not one.workers and not other.workers:
        return one.engine == other.engine and one.pin == other.pin
    return one == other


def _distinct(baseline: Setting, settings: Iterable[Setting]) -> tuple[Setting, ...]:
    found = [baseline]
    for each in settings:
        if not any(_same(each, other) for other in found):
            found.append(each)
    return tuple(found)
