"""Analyses all ranks of a run together, and finds one that the others wait for. Pure but for the reading of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from stoker._tools.report.profiler import reading
from stoker._tools.report.profiler.analysis import Parts, RankAnalysis, analyse
from stoker._tools.report.profiler.timeline import Timeline, collect
from stoker.errors import TraceError

_LATE = 0.05
"""Share of the wall that the others wait for a rank, from which on it counts as late."""
_RANK = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that the others wait for in collectives."""

    rank: str
    share: float
    """Of their wall, on average."""
    part: str
    """Of which part of its wall the late rank has more than the others: a field of Parts, without its unit."""
    more: float
    """How much more, as a share of its wall."""


@dataclass(slots=True)
class Analysis:
    """A run, as its traces show it."""

    ranks: list[RankAnalysis]
    late: LateRank | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Parts:
        """Return the parts of all devices of all ranks; without devices, of all loops."""
        together = Parts()
        for each in self.ranks:
            together.add(each.parts)
        return together

    @property
    def on_device(self) -> bool:
        """Whether the traces show work on devices."""
        return any(each.on_device for each in self.ranks)

    @property
    def labelled(self) -> bool:
        """Whether they show a DataLoader at all."""
        return any(each.calls for each in self.ranks)


def read(paths: Sequence[Path]) -> Analysis:
    """Traces of one run: files, or folders of them. Raises TraceError."""
    files = reading.files(list(paths))
    return together([collect(each) for each in files])


def together(timelines: Sequence[Timeline]) -> Analysis:
    """Raises TraceError when none of them has anything to judge."""
    groups: dict[object, list[Timeline]] = {}
    for each in timelines:
        if each.rank is None and (told := _RANK.search(each.path.name)):
            each.rank = int(told[1])
        groups.setdefault((each.rank, each.process if each.rank is None else ""), []).append(each)
    ranks = [analyse(each) for each in groups.values()]
    judged = sorted(
        (each for each in ranks if each.parts.wall_ns), key=lambda each: (each.rank is None, each.rank or 0)
    )
    if not judged:
        names = ", ".join(each.path.name for each in timelines[:3])
        if any(each.ours for each in timelines):
            raise TraceError(
                f"{names} is a trace that stoker wrote: ask for a report on the record that it was made from"
            )
        raise TraceError(
            f"there is nothing to judge in {names}: no steps, no operations, no work on a device, no DataLoader"
        )
    found = Analysis(judged, notes=[note for each in ranks for note in each.notes])
    if len(judged) < len(ranks):
        found.notes.append(f"{len(ranks) - len(judged)} of {len(ranks)} ranks had nothing to judge.")
    found.late = _late(judged)
    world = max((each.world_size or 0 for each in timelines), default=0)
    if world > len(judged):
        found.notes.append(
            f"These are {len(judged)} of {world} ranks: give all their traces to see which rank waits for which."
        )
    return found


def _late(ranks: list[RankAnalysis]) -> LateRank | None:
    """A collective ends for all when the last rank comes: whoever spends least time in it came last."""
    if len(ranks) < 2 or not all(len(each.comm) for each in ranks):
        return None
    if len({len(each.comm) for each in ranks}) == 1:
        took = np.stack([each.comm for each in ranks])
        waits = (took - took.min(axis=0)).sum(axis=1)
    else:
        sums = np.array([each.comm.sum() for each in ranks])
        waits = sums - sums.min()
    last = int(np.argmin(waits))
    others = [place for place in range(len(ranks)) if place != last]
    share = float(np.mean([waits[place] / ranks[place].parts.wall_ns for place in others]))
    if share < _LATE:
        return None
    more = {
        each.name.removesuffix("_ns"): _share(ranks[last], each.name)
        - float(np.mean([_share(ranks[place], each.name) for place in others]))
        for each in fields(Parts)
    }
    part = max(more, key=more.__getitem__)
    return LateRank(name(ranks[last], last), share, part, more[part])


def name(rank: RankAnalysis, place: int) -> str:
    """A rank as one would point at it."""
    return f"rank {rank.rank}" if rank.rank is not None else rank.files[0] if rank.files else f"trace {place}"


def _share(rank: RankAnalysis, part: str) -> float:
    return float(getattr(rank.parts, part) / rank.parts.wall_ns)
