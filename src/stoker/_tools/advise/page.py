"""Advice as a report: what the report of its run and of the doctor has, and before that the edits, the patch and the forecast."""

from __future__ import annotations

from dataclasses import replace

from stoker._record.finding import capitalised
from stoker._tools.advise import plain
from stoker._tools.advise.advice import Advice
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.forms import data
from stoker._tools.render.section import Code, Part, Prose, Remark, Report, Section, Table
from stoker._tools.report.page import build
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections.findings import remark
from stoker._tools.report.page.terms import sentence
from stoker._tools.report.verdict.codes import CODES


def report(advice: Advice) -> Report:
    """Ready to be rendered."""
    run = ReportedRun(advice.command.script, advice.record, advice.verdict, advice.notes)
    diagnoses = tuple(data.as_json(each) for each in advice.diagnoses)
    whole = build.report(Material((run,), diagnoses=diagnoses))
    first, *others = whole.sections
    return replace(
        whole,
        title="stoker advise",
        sections=(first, *_advice(advice), *others),
        raw={**whole.raw, "advice": plain.as_json(advice)},
    )


def _advice(advice: Advice) -> list[Section]:
    edits: list[Part] = [
        Remark(
            each.code,
            each.severity,
            f"{number}. {_title(each.code)}",
            sentence(each.evidence),
            each.advice,
            str(replace(each.edit, site=each.site)),
            each.gain,
        )
        for number, each in enumerate(advice.edits, 1)
    ]
    further: list[Part] = [remark(each) for each in advice.further]
    parts = [*edits, *further] if advice.hang is None else [*further, *edits]
    parts += [Prose(f"Left to you: {each.edit} ({each.reason})") for each in advice.refused]
    found = [Section("advice", "Advice", tuple(parts))] if parts else []
    patch = plain.patch_of(advice)
    if patch:
        told = Prose(f"`{advice.command.again('--fix')}` prints it, and `--write` applies it.")
        found.append(Section("patch", "Patch", (told, Code(patch, "diff"))))
    if advice.forecast:
        rows = tuple((each.subject, each.text) for each in advice.forecast)
        found.append(
            Section(
                "forecast",
                "Forecast",
                (Table("What other settings would change, or why not", ("setting", "forecast"), rows),),
            )
        )
    return found


def _title(code: str) -> str:
    """Of a check, or of a verdict's finding."""
    check = check_of(code)
    return capitalised(CODES.get(code, code)) if check is None else check.title
