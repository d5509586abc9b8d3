"""Builds a report from a demo's record: the headline, a section for every act, and the recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stoker._record.schema import RunRecord
from stoker._tools.demo import runner
from stoker._tools.demo.record import checked
from stoker._tools.demo.summary import disturbance
from stoker._tools.render.section import Chart, Part, Prose, Report, Section, SideBySide
from stoker._tools.report.page import build
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.verdict.verdict import judge
from stoker.errors import RecordError

_DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What an act's section raises for a result that lacks something."""


def report(record: Any) -> Report:
    """Return the report of a record, also of one that was read from a file.

    Raises RecordError if the record is damaged, or newer than this version.
    """
    record = checked(record)
    try:
        sections = [_opening(record)]
    except _DAMAGE as error:
        raise RecordError(f"this demo's record is damaged: {type(error).__name__}: {error}") from error
    headline = ""
    for name, entry in record["acts"].items():
        try:
            sections += _act(name, entry)
            if entry["result"] is not None:
                headline = headline or _headline(name, entry["result"])
        except RecordError:
            raise
        except _DAMAGE as error:
            raise RecordError(
                f"this demo's record is damaged: act {name}: {type(error).__name__}: {error}"
            ) from error
    return Report(
        title="stoker demo",
        headline=headline or "Nothing was measured.",
        severity="",
        sections=tuple(_distinct(sections)),
        raw={"demo": record},
    )


def runs(result: dict[str, Any]) -> tuple[ReportedRun, ...]:
    """The runs that an act recorded, judged. Raises RecordError."""
    found = [(str(each["label"]), RunRecord.from_dict(each["record"])) for each in result.get("runs", ())]
    return tuple(ReportedRun(label, record, judge(record)) for label, record in found)


def _act(name: str, entry: dict[str, Any]) -> list[Section]:
    """Its own sections, and those of the runs it recorded."""
    if name not in runner.ACTS:
        return [
            Section(
                name,
                entry["title"],
                (Prose("This stoker does not know this act: a newer one made the record."),),
            )
        ]
    if entry["result"] is None:
        text = f"This act was not finished: {entry['failure'] or 'nothing was measured'}."
        return [Section(name, entry["title"], (Prose(text),))]
    found = list(runner.act(name).sections(entry["result"]))
    recorded = runs(entry["result"])
    if recorded:
        found += build.report(Material(recorded)).sections
    return found


def _headline(name: str, result: dict[str, Any]) -> str:
    """An act may say in a sentence or two what the demo comes down to; otherwise its first line does."""
    act = runner.act(name)
    said = getattr(act, "headline", None)
    return str(said(result)) if said is not None else " ".join(act.lines(result)[:1])


def _opening(record: dict[str, Any]) -> Section:
    machine = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in (machine.get("versions") or {}).items())
    how = "stoker demo --quick" if record.get("quick") else "stoker demo"
    usable = (
        f"{machine.get('usable') or '?'} usable CPUs ({machine.get('usable_reason') or 'no reason is known'})"
    )
    text = (
        f"Everything here was measured by `{how}` in {record['seconds']:.0f} s, on built-in data, with torch's `DataLoader`"
        " and stoker's in turns and with the same arguments. "
        f"The machine: {usable}; {versions}."
    )
    parts = [text]
    disturbed = disturbance(record)
    if disturbed:
        parts.append(disturbed)
    if record.get("interrupted"):
        parts.append("It was interrupted: what follows is what had been measured by then.")
    return Section("demo", "What this is", tuple(map(Prose, parts)))


def _distinct(sections: Sequence[Section]) -> list[Section]:
    """With ids that are unique, of sections and of charts: acts do not know of each other's."""
    taken: set[str] = set()

    def own(wanted: str) -> str:
        number, name = 1, wanted
        while name in taken:
            number += 1
            name = f"{wanted}-{number}"
        taken.add(name)
        return name

    def part(each: Part) -> Part:
        match each:
            case Chart():
                return replace(each, id=own(each.id))
            case SideBySide():
                return replace(
                    each, columns=tuple((label, tuple(map(part, inner))) for label, inner in each.columns)
                )
            case _:
                return each

    return [replace(each, id=own(each.id), parts=tuple(map(part, each.parts))) for each in sections]
