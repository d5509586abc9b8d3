"""``multiprocessing_context``: how worker processes are started.

It changes the time until the first batch, and nothing in a step. So it is not raced: each method is run once before the race,
and the race uses the target's own unless only another one works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker._record.finding import duration
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.knobs.knob import Knob

if TYPE_CHECKING:
    from stoker._tools.tune.model.block import Block

METHODS = ("fork", "forkserver")
"""Spawned workers come from a template too, so they take about as long as forkserver's."""
_MATTERS = 2.0
_MATTERS_NS = 100_000_000
"""A difference in the time to the first batch is reported if it is this large, as a ratio and in nanoseconds."""


class MultiprocessingContext(Knob):
    """The value is the name of a start method."""

    name = "multiprocessing_context"
    field = "start_method"
    minor = True

    def read(self, loader: Any) -> str | None:
        context = loader.multiprocessing_context
        return None if context is None else str(context.get_start_method())

    def written(self, loader: Any) -> str:
        return repr(self.read(loader))

    def words(self, setting: Setting) -> str:
        return setting.start_method or ""


@dataclass(frozen=True, slots=True)
class StartTrial:
    """One start method. ``first_ns``: from ``iter()`` to the first batch; None if it could not be run, for ``failure``."""

    method: str
    first_ns: int | None
    failure: str = ""


def try_starts(run: Callable[[Setting], Block], workers: int) -> tuple[StartTrial, ...]:
    """Run each method once with so many workers. ``run`` starts a loader, takes a few batches and closes it."""
    found = []
    for method in METHODS:
        block = run(Setting(workers, prefetch=2, start_method=method))
        found.append(StartTrial(method, None if block.failure else block.first_ns, block.failure))
    return tuple(found)


def chosen_start(starts: tuple[StartTrial, ...], own: str | None, usual: str) -> str | None:
    """The method to race with: the target's own, unless only another one works. None: as the loader chooses."""
    by_name = {each.method: each for each in starts}
    mine = by_name.get(own or usual)
    if mine is None or not mine.failure:
        return own
    others = [each.method for each in starts if each.first_ns is not None]
    return others[0] if others else own


def start_sentence(starts: tuple[StartTrial, ...], own: str | None, usual: str) -> str:
    """A sentence about the methods if they differ enough to matter; else ""."""
    timed = {each.method: each.first_ns for each in starts if each.first_ns is not None}
    failed = [each for each in starts if each.failure]
    if failed and timed:
        return f"{failed[0].method} cannot start these workers ({failed[0].failure.rstrip('.')}); {next(iter(timed))} can"
    if len(timed) < 2:
        return ""
    quick, slow = min(timed, key=lambda each: timed[each]), max(timed, key=lambda each: timed[each])
    if timed[slow] < _MATTERS * timed[quick] or timed[slow] - timed[quick] < _MATTERS_NS:
        return ""
    mine = own or usual
    took = {each: duration(timed[each] / 1e9) for each in (quick, slow)}
    said = f"by {quick} the first batch comes after {took[quick]}, by {slow} after {took[slow]}"
    return f"{said} (yours: {mine}); persistent workers pay that once"
