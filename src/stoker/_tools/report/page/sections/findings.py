"""Shows what to change: the findings of each run, of its traces and of the doctor, with edits and gains."""

from __future__ import annotations

from typing import Any

from stoker._record.finding import SEVERITIES, capitalised
from stoker._tools.render.section import Part, Prose, Remark, Section, Table, side_by_side
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.terms import cut, edited, gained, sentence
from stoker._tools.report.verdict.codes import CODES, VerdictFinding

_MOST_LOADERS = 4


def section(material: Material) -> Section | None:
    """The runs' side by side, the doctor's below."""
    parts = [*side_by_side((run.label, _run(run)) for run in material.runs)]
    if material.traces is not None:
        parts += [remark(each) for each in material.traces.findings]
    for diagnosis in material.diagnoses:
        parts += _diagnosis(diagnosis)
    return Section("findings", "Findings", tuple(parts)) if parts else None


def _run(run: ReportedRun) -> list[Part]:
    found: list[Part] = []
    several = len([each for each in run.verdict.loaders if each.findings]) > 1
    for loader in run.verdict.loaders[:_MOST_LOADERS]:
        if several and loader.findings:
            found.append(
                Prose(f"About {loader.name} ({loader.site}):" if loader.site else f"About {loader.name}:")
            )
        found += [remark(each) for each in loader.findings]
    return found


def remark(finding: VerdictFinding) -> Remark:
    """A finding of a verdict."""
    edit = finding.edit
    title = CODES.get(finding.code, finding.code)
    return Remark(
        code=finding.code,
        severity=finding.severity,
        title=capitalised(title),
        evidence=sentence(finding.evidence),
        advice=finding.advice,
        edit=None if edit is None else edited(edit.after, edit.before, edit.site),
        gain=gained(finding.gain),
    )


def _diagnosis(diagnosis: dict[str, Any]) -> list[Part]:
    findings = diagnosis["findings"]
    subject = cut(_text(diagnosis.get("subject")), 80)
    parts: list[Part] = (
        [Prose(f"What `stoker doctor` says about {subject.replace('`', '')}:")] if findings else []
    )
    parts += [_of_doctor(each) for each in sorted(findings, key=_rank)]
    passed = diagnosis.get("passed")
    skipped = diagnosis.get("skipped")
    if isinstance(passed, list) and not findings:
        parts.append(
            Prose(
                f"The doctor has nothing to say against {subject.replace('`', '')}: {len(passed)} checks passed."
            )
        )
    if isinstance(skipped, list) and skipped:
        rows = tuple(
            (_text(each.get("code")), _text(each.get("reason"))) for each in skipped if isinstance(each, dict)
        )
        parts.append(Table("Checks that could not be made", ("check", "because"), rows))
    if diagnosis.get("interrupted"):
        parts.append(Prose("The examination was interrupted: this is what it had found by then."))
    return parts


def _of_doctor(finding: dict[str, Any]) -> Remark:
    code = _text(finding.get("code"))
    severity = finding.get("severity")
    where = f" ({_text(finding['where'])})" if finding.get("where") else ""
    more = f" `stoker explain {code.replace('`', '')}` says more."
    return Remark(
        code,
        severity if severity in SEVERITIES else "none",
        _text(finding.get("title")) or code,
        f"{_text(finding.get('evidence'))}{where}",
        f"{_text(finding.get('advice'))}{more}",
        _edit(finding.get("edit")),
        _gain(finding.get("gain")),
    )


def _edit(edit: Any) -> str | None:
    if not isinstance(edit, dict) or not (edit.get("after") or edit.get("before")):
        return None
    before, site = edit.get("before"), edit.get("site")
    after = _text(edit.get("after"), keep=True)
    return edited(after, _text(before, keep=True) if before else None, _text(site) if site else None)


def _gain(gain: Any) -> str | None:
    """As ``Gain`` writes itself."""
    if not isinstance(gain, dict):
        return None
    share, how = gain.get("share"), _text(gain.get("how"))
    if not isinstance(share, int | float):
        return f"not known ({how})" if how else None
    return f"{'at most' if gain.get('at_most') else 'about'} −{share:.0%} of the step's time" + (
        f" ({how})" if how else ""
    )


def _rank(finding: dict[str, Any]) -> int:
    severity = finding.get("severity")
    return -SEVERITIES.index(severity) if severity in SEVERITIES else 1


def _text(value: Any, keep: bool = False) -> str:
    """What is no text is shown as it is; ``keep``: with its lines."""
    text = "" if value is None else str(value)
    return text if keep else " ".join(text.split())
