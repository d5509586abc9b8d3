"""Collects the records that a script's loaders left in their folder into one record of the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker._record import journal, machine
from stoker._record.merge_loaders import merged
from stoker._record.schema import Run, RunRecord
from stoker._tools.profile.supervisor import ScriptExit
from stoker.errors import RecordError


@dataclass(frozen=True, slots=True)
class CollectedRecord:
    """``unreadable``: why files of the folder are not part of the record."""

    record: RunRecord
    unreadable: list[str]


def gather(folder: Path, outcome: ScriptExit, argv: Sequence[str]) -> CollectedRecord:
    """All records in ``folder``; one without loaders when there are none. A file that cannot be read does not hide the others."""
    found: list[RunRecord] = []
    unreadable: list[str] = []
    for path in sorted(folder.glob("*.json*")):
        try:
            found.append(journal.read(path))
        except RecordError as error:
            unreadable.append(str(error))
    record = _one(found) if found else _empty(outcome)
    run = record.run
    run.pid, run.argv = outcome.pid, list(argv)
    run.exit, run.ended = outcome.text, outcome.code >= 0
    return CollectedRecord(record, unreadable)


def _one(found: Sequence[RunRecord]) -> RunRecord:
    """Of all processes; in each, loaders that were made anew for every epoch are one."""
    processes: dict[int, list[RunRecord]] = {}
    for each in found:
        processes.setdefault(each.run.pid, []).append(each)
    whole = []
    for records in processes.values():
        record = journal.merged(records)
        record.loaders = merged(record.loaders)
        whole.append(record)
    return journal.merged(whole)


def _empty(outcome: ScriptExit) -> RunRecord:
    run = Run(
        f"{outcome.began_unix_ns:x}-{outcome.pid}",
        outcome.pid,
        [],
        outcome.began_unix_ns,
        outcome.began_ns,
        _number("RANK", 0),
        _number("WORLD_SIZE", 1),
    )
    return RunRecord(run, machine.facts())


def _number(name: str, otherwise: int) -> int:
    """Of the launcher's variables."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise
