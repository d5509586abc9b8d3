"""Collects the records that a script's loaders left in their folder into one record of the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker._host.secrets import masked_words
from stoker._record import journal
from stoker._record.merge_loaders import merged
from stoker._record.readings import machine
from stoker._record.schema import LoaderRecord, Run, RunRecord
from stoker._tools.profile import left_to_torch
from stoker._tools.profile.supervisor import ScriptExit
from stoker._tools.render import loader_names
from stoker.errors import RecordError


@dataclass(frozen=True, slots=True)
class CollectedRecord:
    """What a folder holds."""

    record: RunRecord
    unreadable: list[str]
    """Why files of the folder are not part of the record."""
    ranks: list[str]
    """A line for each rank, if there were several."""
    left: list[str]
    """Which loaders stayed torch's under ``stoker run``, and why."""


def gather(folder: Path, outcome: ScriptExit, argv: Sequence[str]) -> CollectedRecord:
    """All records in ``folder``; one without loaders when there are none. A file that cannot be read does not hide the others."""
    found: list[RunRecord] = []
    unreadable: list[str] = []
    for path in sorted(folder.glob("*.json*")):
        try:
            found.append(journal.read(path))
        except RecordError as error:
            unreadable.append(str(error))
    ranks = _by_rank(found)
    record = _one(found) if found else _empty(outcome)
    run = record.run
    run.pid, run.argv = outcome.pid, masked_words(argv)
    run.exit, run.ended = outcome.text, outcome.code >= 0
    _tell_apart(record.loaders)
    notes = [path.read_text(errors="replace") for path in folder.glob(f"*{left_to_torch.SUFFIX}")]
    left = {line for note in notes for line in note.splitlines()}
    return CollectedRecord(record, unreadable, ranks, sorted(left))


def _by_rank(found: Sequence[RunRecord]) -> list[str]:
    """What each rank's loaders gave; then the loaders' names say whose they are. Nothing where there is one rank."""
    # A loader may have been used before its process joined the group.
    known = {each.run.pid: each.run.rank for each in found if each.run.world_size > 1}
    ranks: dict[int, list[LoaderRecord]] = {}
    for record in found:
        ranks.setdefault(known.get(record.run.pid, record.run.rank), []).extend(record.loaders)
    if len(ranks) < 2:
        return []
    lines = []
    for rank, loaders in sorted(ranks.items()):
        batches = sum(each.totals.steps for each in loaders)
        wait_ns = sum(each.totals.wait_ns for each in loaders)
        whole_ns = wait_ns + sum(each.totals.step_ns for each in loaders)
        waits = f", {wait_ns / whole_ns:.0%} of the time waiting for them" if whole_ns else ""
        engines = " and ".join(sorted({each.engine for each in loaders}))
        lines.append(f"{rank}  {batches} batches by {engines}'s engine{waits}")
        for each in loaders:
            each.name = f"{each.name}, rank {rank}"
    return lines


def _one(found: Sequence[RunRecord]) -> RunRecord:
    """Return one record of all processes. Loaders of a process that were made anew for every epoch are one."""
    processes: dict[int, list[RunRecord]] = {}
    for each in found:
        processes.setdefault(each.run.pid, []).append(each)
    whole = []
    for records in processes.values():
        record = journal.merged(records)
        record.loaders = merged(record.loaders)
        whole.append(record)
    return journal.merged(whole)


def _tell_apart(loaders: Sequence[LoaderRecord]) -> None:
    named = [loader_names.NamedLoader(each.name, each.dataset, each.site, _sampler(each)) for each in loaders]
    for each, name in zip(loaders, loader_names.distinct(named), strict=True):
        each.name = name


def _sampler(loader: LoaderRecord) -> str:
    option = loader.options.get("sampler")
    return "" if option is None else str(option.value)


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
    """Return the number in one of the launcher's variables."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise
