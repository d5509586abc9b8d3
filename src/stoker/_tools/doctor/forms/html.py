"""A diagnosis in a notebook: one self-contained fragment, readable on light and dark ground."""

from __future__ import annotations

from html import escape

from stoker._record.finding import Finding
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.forms.screen import headline, prevented_by, title_of
from stoker._tools.render.theme import ON_ANY_GROUND


def render(diagnosis: Diagnosis) -> str:
    """No script, no style sheet, no reference to anything outside; all text escaped."""
    colour = ON_ANY_GROUND[diagnosis.worst]
    parts = [
        '<div style="font-family:sans-serif;max-width:60em;line-height:1.4">',
        f'<div style="border-left:4px solid {colour};padding:2px 0 2px 10px">',
        f"<b>{escape(headline(diagnosis))}</b><br><small>{escape(diagnosis.subject)}</small></div>",
    ]
    if diagnosis.interrupted:
        parts.append("<p><i>It was stopped: this was found until then.</i></p>")
    parts += [_finding(each) for each in diagnosis.findings]
    parts += [_rest(diagnosis), "</div>"]
    return "".join(parts)


def _finding(finding: Finding) -> str:
    rows = [("Where", _code(finding.where)) if finding.where else None, ("Seen", _text(finding.evidence))]
    rows.append(("Fix", _text(finding.advice)))
    if finding.edit is not None:
        rows.append(("", _code(str(finding.edit))))
    if finding.gain is not None:
        rows.append(("Gain", _text(f"{finding.gain}: {finding.gain.how}")))
    if prevented := prevented_by(finding):
        rows.append(("stoker", _text(f"Its loader prevents this. {prevented}")))
    cells = "".join(
        f'<tr style="background:transparent"><td style="text-align:left;vertical-align:top;opacity:.7">{row[0]}</td>'
        f'<td style="text-align:left">{row[1]}</td></tr>'
        for row in rows
        if row
    )
    # What is bad lies open, the rest folds.
    opened = " open" if finding.severity in ("moderate", "high") else ""
    return (
        f'<details{opened} style="margin-top:6px"><summary><b style="color:{ON_ANY_GROUND[finding.severity]}">'
        f"{escape(finding.code)} {escape(finding.severity)}</b> {escape(title_of(finding))}</summary>"
        f'<table style="border:none;margin-left:12px">{cells}</table></details>'
    )


def _rest(diagnosis: Diagnosis) -> str:
    said = f"{len(diagnosis.passed)} checks found nothing, {len(diagnosis.skipped)} were skipped"
    if not diagnosis.skipped:
        return f"<p><small>{said}.</small></p>"
    items = "".join(f"<li>{escape(each.code)}: {escape(each.reason)}</li>" for each in diagnosis.skipped)
    return (
        f'<details style="margin-top:6px"><summary><small>{said}</small></summary><ul>{items}</ul></details>'
    )


def _text(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
