"""Groups records that belong to one run, and labels the runs. Pure.

Files of one run are its processes, its ranks, its loaders. Two records are of one run when they have the same id, or when
they were made at the same time by the same command: as ranks that differ, or without ranks. A run that was repeated began after the
first one had ended, and is another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker._record import journal
from stoker._record.schema import LoaderRecord, RunRecord

_STARTED_TOGETHER_NS = 60_000_000_000
"""Ranks of one job may begin so far apart, though the first has ended by then."""
_LONGEST_LABEL = 40


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A record, where it was read, and what is to be said of its files."""

    path: Path
    record: RunRecord
    notes: tuple[str, ...] = ()


def grouped(records: Sequence[RecordSource]) -> list[list[RecordSource]]:
    """The runs, in the order in which they were given. Nothing is changed."""
    runs: list[list[RecordSource]] = []
    for each in records:
        touched = [run for run in runs if any(_same(each.record, other.record) for other in run)]
        runs = [run for run in runs if run not in touched or run is touched[0]]
        if not touched:
            runs.append([each])
            continue
        for run in touched[1:]:
            touched[0] += run
        touched[0].append(each)
    return runs


def whole(run: Sequence[RecordSource]) -> RunRecord:
    """One record of a run's files, which are used up."""
    return journal.merged([each.record for each in run])


def labels(runs: Sequence[Sequence[RecordSource]]) -> list[str]:
    """A name for each, as short as tells them apart: the file's, its folder's too, or with a number."""
    for parts in (1, 2, 3):
        found = [_cut("/".join(run[0].path.absolute().parts[-parts:])) for run in runs]
        if len(set(found)) == len(found):
            return found
    return [f"{name} ({number})" for number, name in enumerate(found, 1)]


def _same(one: RunRecord, other: RunRecord) -> bool:
    a, b = one.run, other.run
    if a.id == b.id:
        return True
    if a.argv != b.argv or a.world_size != b.world_size:
        return False
    if a.world_size > 1 and a.rank == b.rank and a.pid != b.pid:
        return False
    apart_ns = abs(a.began_unix_ns - b.began_unix_ns)
    first = one if a.began_unix_ns <= b.began_unix_ns else other
    ranks = a.world_size > 1 and a.rank != b.rank
    return apart_ns < max(_length_ns(first), _STARTED_TOGETHER_NS if ranks else 0)


def _length_ns(record: RunRecord) -> int:
    """From its beginning to the last that is known of it."""
    return max(map(_last_ns, record.loaders), default=0)


def _last_ns(loader: LoaderRecord) -> int:
    ended = [each.ended_ns for each in loader.periods]
    given = [each for each in loader.steps.get("given_ns", [])[-1:] if type(each) is int]
    return max([*ended, *given, loader.totals.wall_ns])


def _cut(name: str) -> str:
    name = name.removesuffix(".jsonl").removesuffix(".json").removesuffix(".stoker") or name
    return name if len(name) <= _LONGEST_LABEL else "…" + name[1 - _LONGEST_LABEL :]
