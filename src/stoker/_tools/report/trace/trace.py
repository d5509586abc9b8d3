"""Writes a run record as a trace: what every worker, the reorder buffer and the training loop did (docs/traces.md)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker._record.schema import RunRecord
from stoker._tools.report.profiler.reading import TraceFile
from stoker._tools.report.trace import chrome
from stoker._tools.report.trace.chrome import Event
from stoker._tools.report.trace.tracks import Group

_FIRST_PID = 1_000_000_000
"""Groups are numbered from here: no process, thread or device of a profiler's trace has such a number."""
_PIDS_APART = 100_000
"""The numbers between are those of the group's tracks: Perfetto wants them to be different in the whole file."""


def build(record: RunRecord) -> dict[str, Any]:
    """The whole trace in memory. Times count from the beginning of the run."""
    return {"traceEvents": list(events(record, base_unix_ns=record.run.began_unix_ns)), **entries(record)}


def write(record: RunRecord, path: Path, *, force: bool = False) -> int:
    """The number of events written. Packed when ``path`` ends in ``.gz``; FileExistsError when it exists, without ``force``."""
    found = events(record, base_unix_ns=record.run.began_unix_ns)
    return chrome.write(found, entries(record), path, force=force)


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a merge."""

    events: int
    overlap: bool
    """Whether any moment of the run lies within the profiler's trace. If not, the two are of different runs."""
    damage: str | None
    """What is wrong with the profiler's file, when it could not be read to its end."""


def merge(record: RunRecord, profiled: Path, path: Path, *, force: bool = False) -> Merged:
    """One file with the events of a run and those of a torch.profiler trace that was made during it, on its time line.

    The profiler's events stay as they are. Raises TraceError when ``profiled`` is no trace, FileExistsError as ``write``.
    """
    theirs = TraceFile(profiled)
    beside: dict[str, Any] = {}
    seen = _MergedSoFar()
    found = itertools.chain(seen.watch(theirs.events()), _beside(record, theirs, seen, beside))
    written = chrome.write(found, beside, path, force=force)
    return Merged(written, seen.overlap, theirs.damage)


def _beside(
    record: RunRecord, theirs: TraceFile, seen: _MergedSoFar, beside: dict[str, Any]
) -> Iterator[Event]:
    """Ours, once theirs are through: only then is it known which moment they count from and which numbers are taken."""
    beside |= theirs.entries | {"stokerRun": record.run.id}
    ours = events(record, base_unix_ns=theirs.base_unix_ns, taken=seen.pids)
    yield from seen.compare(ours)


@dataclass(slots=True)
class _MergedSoFar:
    """What has gone by of two traces that are being merged."""

    pids: set[object] = field(default_factory=set)
    began_us: float = math.inf
    ended_us: float = -math.inf
    overlap: bool = False

    def watch(self, found: Iterator[Event]) -> Iterator[Event]:
        """Theirs."""
        for event in found:
            if isinstance(pid := event.get("pid"), int | str):
                self.pids.add(pid)
            if event.get("ph") == "X" and isinstance(event.get("ts"), int | float):
                self.began_us = min(self.began_us, event["ts"])
                self.ended_us = max(self.ended_us, event["ts"])
            yield event

    def compare(self, found: Iterator[Event]) -> Iterator[Event]:
        """Ours."""
        for event in found:
            if event["ph"] == "B" and self.began_us <= event["ts"] <= self.ended_us:
                self.overlap = True
            yield event


def entries(record: RunRecord) -> dict[str, Any]:
    """What stands beside the events, in the words that torch.profiler uses."""
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": record.run.began_unix_ns,
        "stokerRun": record.run.id,
    }


def events(record: RunRecord, *, base_unix_ns: int, taken: Collection[object] = ()) -> Iterator[Event]:
    """All events of a run, group by group and track by track; on a track in order of time.

    ``base_unix_ns``: the moment that the file counts from. ``taken``: numbers of groups that are in use already.
    """
    offset_ns = record.run.began_unix_ns - base_unix_ns
    pid = _FIRST_PID
    for order, loader in enumerate(record.loaders):
        while pid in taken:
            pid += _PIDS_APART
        yield from Group(loader, pid, order, lambda moment_ns: (moment_ns + offset_ns) / 1000).events()
        pid += _PIDS_APART
