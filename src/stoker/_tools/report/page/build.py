"""Builds a report's sections from its material, in order. Pure."""

from __future__ import annotations

from typing import Any

from stoker._record.finding import SEVERITIES
from stoker._tools.render.section import Report
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.sections import (
    blame,
    breakdown,
    cache,
    compare,
    curve,
    findings,
    lanes,
    machine,
    memory,
    slowest,
    traces,
    verdict,
)
from stoker._tools.report.page.terms import percent
from stoker._tools.report.verdict import screen

SECTIONS = (
    verdict,
    traces,
    compare,
    breakdown,
    findings,
    curve,
    lanes,
    memory,
    cache,
    blame,
    slowest,
    machine,
)
"""In the order of the page. A section that has nothing to say returns None and is left out."""
_MOST_NAMED = 4


def report(material: Material) -> Report:
    """Return the whole report. Raises nothing for records that are whole."""
    made = [each.section(material) for each in SECTIONS]
    return Report(
        title="stoker report",
        headline=_headline(material),
        severity=_severity(material),
        sections=tuple(each for each in made if each is not None),
        raw=_raw(material),
        verdicts=_verdicts(material),
    )


def _headline(material: Material) -> str:
    """Return the headline for all that was given, in a sentence or two."""
    if material.traces is not None:
        return material.traces.headline
    if len(material.runs) == 1:
        return material.runs[0].verdict.headline
    if material.runs:
        return compare.headline(material) or _compared(material)
    told = [str(each.get("verdict") or f"A tuning of {each.get('target')}.") for each in material.tunings]
    for each in material.diagnoses:
        count = len(each["findings"])
        told.append(f"The doctor has {count or 'no'} finding{'s' * (count != 1)} about {each['subject']}.")
    return " ".join(told)


def _compared(material: Material) -> str:
    """Several runs in one sentence; each one's own is in its place."""
    told = [
        f"{run.label} waits {percent(run.verdict.loaders[0].causes.stall)} of the time for data"
        if run.verdict.loaders
        else f"{run.label} handed out no batch"
        for run in material.runs
    ]
    return f"{'; '.join(told[:_MOST_NAMED])}{f'; and {len(told) - _MOST_NAMED} more' * (len(told) > _MOST_NAMED)}."


def _severity(material: Material) -> str:
    """The worst of what is said."""
    found = [run.verdict.loaders[0].causes.severity for run in material.runs if run.verdict.loaders]
    found += [str(each.get("worst")) for each in material.diagnoses]
    found += map(verdict.of_tuning, material.tunings)
    if material.traces is not None:
        found.append(material.traces.severity)
    return max((each for each in found if each in SEVERITIES), key=SEVERITIES.index, default="none")


def _raw(material: Material) -> dict[str, Any]:
    raw: dict[str, Any] = {run.label: run.record.as_dict() for run in material.runs}
    for name, documents in (("tuning", material.tunings), ("diagnosis", material.diagnoses)):
        for number, each in enumerate(documents, 1):
            raw[name if len(documents) == 1 else f"{name} {number}"] = each
    return raw


def _verdicts(material: Material) -> dict[str, Any]:
    told = {run.label: screen.as_json(run.verdict) for run in material.runs}
    if material.traces is not None:
        from stoker._tools.report.profiler import screen as trace_screen

        told["traces"] = trace_screen.as_json(material.traces)
    return told
