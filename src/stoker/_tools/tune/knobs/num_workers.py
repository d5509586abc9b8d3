"""``num_workers``: how many workers make batches. 0: the training process makes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoker._record.finding import counted
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob, given

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""Numbers that are replayed and tried. Finer differences cannot be measured."""
INLINE_NS = 2_000_000
"""A batch that takes less than this may be made faster than it is handed over."""
_NEAR = 1.6
"""No workers are tried where they are predicted to take up to this much longer than the best."""


class NumWorkers(Knob):
    """Tried around the number that the replay predicts, then outwards from the best. Predicted by the replay itself."""

    name = "num_workers"
    field = "workers"
    default = 0
    needs_workers = False
    in_profile = True

    def read(self, loader: Any) -> int:
        return int(loader.num_workers)

    def written(self, loader: Any) -> str:
        return repr(given(loader.num_workers))

    def is_left_open(self, written: str) -> bool:
        """Never: an edit names the number even where it is the default."""
        return False

    def first(self, baseline: Setting, own: Setting, context: KnobContext) -> list[Setting]:
        """The predicted number, and no workers where these may be as good or nothing else is allowed."""
        known = context.prior
        found = []
        if context.bounds.workers:
            found.append(replace(own, workers=_starting_counts(context)[0]))
        if (
            not baseline.workers
            or known.batch_ns < INLINE_NS
            or known.predicted[0] <= _NEAR * min(known.predicted.values())
            or not found
        ):
            found.append(context.without_workers(own))
        return found

    def further(self, own: Setting, context: KnobContext) -> list[Setting]:
        if not context.bounds.workers:
            return []
        return [replace(own, workers=count) for count in _starting_counts(context)[1:]]

    def around(self, best: Setting, tried: Collection[Setting], context: KnobContext) -> list[Setting]:
        if not best.workers:
            one = Setting(1, prefetch=2, pin=best.pin, extra=best.extra)
            return [one] if context.bounds.workers else []
        counts = {
            each.workers
            for each in tried
            if each.workers and (each.executor, each.threads) == (best.executor, best.threads)
        }
        return [
            context.with_window(replace(best, workers=count, engine="stoker"))
            for count in _outwards(best.workers, counts, context.most_workers, doubled=context.mostly_waits)
        ]

    def effort(self, setting: Setting) -> int:
        """Return 0: every call has the argument."""
        return 0

    def words(self, setting: Setting) -> str:
        """With the batches that each worker makes ahead: "3 workers × 4"."""
        if not setting.workers:
            return "no workers"
        ahead = f" × {setting.prefetch}" if setting.prefetch is not None else ""
        return counted(setting.workers, "thread" if setting.kind.threads else "worker") + ahead

    def phrase(self, setting: Setting) -> str:
        """As a person says it: "4 workers", "8 threads as workers", "no workers"."""
        if not setting.workers:
            return "no workers"
        if setting.kind.threads:
            return f"{counted(setting.workers, 'thread')} as workers"
        return counted(setting.workers, "worker")


def _starting_counts(context: KnobContext) -> list[int]:
    """The predicted number, then one below and one above, far enough apart to be told apart."""
    most = context.most_workers
    middle = min(context.prior.first, most)
    step = max(1, round(middle * 0.35))
    counts = [middle, _nearest(middle - step), _nearest(middle + step)]
    counts = [min(most, each) for each in counts]
    if middle == 1:
        counts += [min(most, 3)]
    return list(dict.fromkeys(counts))


def _outwards(count: int, tried: Iterable[int], most: int, *, doubled: bool) -> list[int]:
    """Numbers beyond those that were tried; within them, the nearest that were left out. ``doubled``: take large steps up."""
    known = sorted({*tried, count})
    found = []
    if count == known[-1]:
        found.append(min(most, count * 2 if doubled else count + max(1, round(count / 3))))
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
    rounded = [each if each <= 2 else _nearest(each) for each in found]
    return [each for each in dict.fromkeys(rounded) if each not in known and each <= most]


def _nearest(wanted: int) -> int:
    return min(COUNTS, key=lambda count: (abs(count - wanted), count))
