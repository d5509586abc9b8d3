"""A diagnosis as Markdown: for a comment on a pull request, or a notebook without HTML."""

from __future__ import annotations

from stoker._record.finding import Finding, capitalised
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.forms.screen import headline, prevented_by, title_of
from stoker._tools.doctor.location import location
from stoker._tools.render.markdown import code, escaped


def render(diagnosis: Diagnosis) -> str:
    """The verdict, a section per finding, and what was skipped, without a newline at its end."""
    verdict = headline(diagnosis)
    blocks = [f"**{escaped(capitalised(verdict))}** in {escaped(diagnosis.subject)}."]
    if diagnosis.interrupted:
        blocks.append("It was stopped: this was found until then.")
    blocks += [_section(each, diagnosis) for each in diagnosis.findings]
    blocks.append(f"{len(diagnosis.passed)} checks found nothing, {len(diagnosis.skipped)} were skipped.")
    if diagnosis.skipped:
        reasons = "\n".join(f"- {each.code}: {escaped(each.reason)}" for each in diagnosis.skipped)
        blocks.append(f"<details><summary>Skipped</summary>\n\n{reasons}\n\n</details>")
    return "\n\n".join(blocks)


def _section(finding: Finding, diagnosis: Diagnosis) -> str:
    place = location(finding, diagnosis.facts)
    lines = [f"### {finding.code} {escaped(title_of(finding))} ({finding.severity})", ""]
    if finding.where:
        lines.append(f"- Where: {code(finding.where)}")
    if place is not None:
        lines.append(f"- File: {code(f'{place.relative}:{place.line}')}")
    lines.append(f"- Seen: {escaped(finding.evidence)}")
    lines.append(f"- Fix: {escaped(finding.advice)}")
    if finding.edit is not None:
        lines.append(f"- Change: {code(str(finding.edit))}")
    if finding.gain is not None:
        lines.append(f"- Gain: {escaped(f'{finding.gain}: {finding.gain.how}')}")
    if prevented := prevented_by(finding):
        lines.append(f"- stoker's loader prevents this: {escaped(prevented)}")
    return "\n".join(lines)
