"""Finds memory that grows from step to step, in a trace with ``profile_memory=True``. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stoker._tools.report.profiler.timeline import Column, Timeline

_FEWEST = 4
_PARTS = 8
_LEAST_BYTES = 1 << 20
_RISING = 0.8


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """What is allocated rises, step after step."""

    where: str
    """"the host", "device 0"."""
    bytes_per_step: int
    steps: int


def growths(timeline: Timeline, began_ns: int, ended_ns: int) -> list[MemoryGrowth]:
    """Where the least that was allocated during a step rises in four steps of five, by a megabyte at least in all.

    A leak lifts the floor; the heights of a step do not count. The first step is left out: it allocates what stays. Without steps
    the window is cut into eight.
    """
    begins = np.sort(timeline.steps.began)[1:]
    if len(begins) < _FEWEST:
        begins = np.linspace(began_ns, ended_ns, _PARTS + 1).astype(np.int64)[1:-1]
    found = []
    for where, (moments, totals) in timeline.memory.items():
        floors = _floors(moments, totals, begins, ended_ns)
        rises = np.diff(floors)
        if len(floors) < _FEWEST or not len(rises):
            continue
        grown = int(floors[-1] - floors[0])
        if grown >= _LEAST_BYTES and float((rises > 0).mean()) >= _RISING:
            found.append(MemoryGrowth(where, grown // len(rises), len(floors)))
    return found


def _floors(moments: Column, totals: Column, begins: Column, ended_ns: int) -> Column:
    """The least in each stretch that has any reading."""
    order = np.argsort(moments, kind="stable")
    moments, totals = moments[order], totals[order]
    inside = (moments >= begins[0]) & (moments <= ended_ns)
    moments, totals = moments[inside], totals[inside]
    places = np.searchsorted(moments, begins)
    full = np.diff(np.concatenate([places, np.array([len(moments)])])) > 0
    if not full.any():
        return np.zeros(0, dtype=np.int64)
    floors: Column = np.minimum.reduceat(totals, places[full])
    return floors
