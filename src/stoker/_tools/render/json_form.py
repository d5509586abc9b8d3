"""Renders a report as JSON: sections of paragraphs, tables and findings. The format is versioned, for other tools."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from stoker._host.secrets import masked_values
from stoker._record.finding import Finding
from stoker._tools.render.section import Chart, Code, Part, Prose, Remark, Report, Section, SideBySide, Table

FORMAT = "stoker-report"
VERSION = 1


def render(report: Report) -> str:
    """One JSON document, without a newline at its end."""
    return json.dumps(as_json(report), indent=1, default=repr)


def as_json(report: Report) -> dict[str, Any]:
    """Plain values. A chart is the table of what it draws; ``verdicts`` are as ``stoker report --json`` has them, by run."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": report.title,
        "headline": report.headline,
        "severity": report.severity,
        "verdicts": report.verdicts,
        "sections": [_section(each) for each in report.sections],
    }


def plain(value: Any, *, most_items: int | None = None, longest_text: int | None = None) -> Any:
    """What JSON can say of a value: numbers that are none become null. "…" shows where items or text were cut."""

    def bounded(inner: Any) -> Any:
        return plain(inner, most_items=most_items, longest_text=longest_text)

    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: bounded(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        found = {str(key): bounded(each) for key, each in list(value.items())[:most_items]}
        return found if len(value) <= (most_items or len(value)) else {**found, "…": f"{len(value)} in all"}
    if isinstance(value, list | tuple | set | frozenset):
        items = [bounded(each) for each in list(value)[:most_items]]
        return items if len(items) == len(value) else [*items, f"… {len(value)} in all"]
    if isinstance(value, str):
        return value if longest_text is None or len(value) <= longest_text else value[:longest_text] + "…"
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else repr(value)


def finding_form(finding: Finding) -> dict[str, Any]:
    """The fields that a finding has in every document: of the doctor, of a verdict, of an explanation (docs/json.md)."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "evidence": finding.evidence,
        "advice": finding.advice,
        "edit": masked_values(plain(finding.edit)),
        "gain": plain(finding.gain),
        "where": finding.where,
        "numbers": plain(dict(finding.numbers)),
    }


def _section(section: Section) -> dict[str, Any]:
    return {"id": section.id, "title": section.title, "parts": [_part(each) for each in section.parts]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Prose():
            return {"kind": "prose", "text": part.text}
        case Code():
            return {"kind": "code", "text": part.text, "language": part.language}
        case Table():
            return {"kind": "table", **_table(part)}
        case Chart():
            head = {"id": part.id, "title": part.title, "summary": part.summary}
            return {"kind": "chart", **head, "table": _table(part.table)}
        case Remark():
            said = {
                "code": part.code,
                "severity": part.severity,
                "title": part.title,
                "evidence": part.evidence,
            }
            return {"kind": "finding", **said, "advice": part.advice, "edit": part.edit, "gain": part.gain}
        case SideBySide():
            columns = [
                {"label": label, "parts": [_part(each) for each in parts]} for label, parts in part.columns
            ]
            return {"kind": "beside", "columns": columns}


def _table(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "columns": list(table.columns),
        "rows": [list(row) for row in table.rows],
    }
