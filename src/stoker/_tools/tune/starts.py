"""Ways to start workers, tried: how long until the first batch. Which way is taken changes that, and nothing in a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from stoker._record.finding import duration
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.model.block import Block

METHODS = ("fork", "forkserver")
"""Spawned workers come from a template too, so that they take about what forkserver's do."""
_MATTERS = 2.0
_MATTERS_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Start:
    """One way. ``first_ns``: from ``iter()`` to the first batch; None: it could not be run, for the reason in ``failure``."""

    method: str
    first_ns: int | None
    failure: str = ""


def try_starts(run: Callable[[Setting], Block], workers: int) -> tuple[Start, ...]:
    """Each way once, with as many workers. ``run`` starts a loader, takes a few batches and closes it."""
    found = []
    for method in METHODS:
        block = run(replace(Setting(workers, prefetch=2), start_method=method))
        found.append(Start(method, None if block.failure else block.first_ns, block.failure))
    return tuple(found)


def taken(starts: tuple[Start, ...], own: str | None, usual: str) -> str | None:
    """The way to race with: the target's own, unless only another one works. None: as the loader would choose."""
    by_name = {each.method: each for each in starts}
    mine = by_name.get(own or usual)
    if mine is None or not mine.failure:
        return own
    others = [each.method for each in starts if each.first_ns is not None]
    return others[0] if others else own


def sentence(starts: tuple[Start, ...], own: str | None, usual: str) -> str:
    """What was seen, where it makes a difference worth knowing; else nothing."""
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
