"""Shows advice on one screen: verdict, reasons, forecast, the edits with their gains, and what to type next."""

from __future__ import annotations

from typing import TextIO

from stoker._tools.advise.advice import Advice
from stoker._tools.render import terminal
from stoker._tools.render.terminal import COLOURS, WIDEST, Line, section
from stoker._tools.report.verdict.codes import VerdictFinding

_MOST_FINDINGS = 5


def show(advice: Advice, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default."""
    terminal.show(lambda width: _lines(advice, width), file)


def render(advice: Advice, width: int = WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(advice, width))


def _lines(advice: Advice, width: int) -> list[Line]:
    loaders = advice.verdict.loaders
    severity = "high" if advice.hang is not None else loaders[0].causes.severity if loaders else None
    colour = COLOURS[severity] if severity else ""
    lines = section("Verdict", [Line(advice.verdict.headline, style=colour)], width)
    besides = [Line(f"{each.advice}   ({_gain(each)}{each.code})") for each in advice.further]
    if advice.hang is not None:  # all else comes after it
        lines += section("Do", besides, width)
    if loaders:
        lines += section("Why", [Line(each) for each in loaders[0].why], width)
    found = [
        f"{each.code}  {each.severity}: {each.evidence}" for one in advice.diagnoses for each in one.findings
    ]
    lines += section("Doctor", [Line(each) for each in found[:_MOST_FINDINGS]], width)
    lines += section("Forecast", _forecast(advice), width)
    lines += section("Edits", _edits(advice), width)
    if advice.hang is None:
        lines += section("Besides" if advice.edits else "Do", besides, width)
    lines += section("Note", [Line(each) for each in (*advice.verdict.notes, *advice.notes)], width)
    if advice.patches:
        again = advice.command.again("--fix")
        lines += section("Next", [Line(f"{again}   prints the patch; --write makes it")], width)
    return lines


def _forecast(advice: Advice) -> list[Line]:
    """The numbers of workers speak for themselves; the others begin with what they are about."""
    return [
        Line(each.text if each.subject == "workers" else f"{each.subject}: {each.text}")
        for each in advice.forecast
    ]


def _edits(advice: Advice) -> list[Line]:
    left = {(each.code, each.edit): each.reason for each in advice.refused}
    lines = []
    for number, each in enumerate(advice.edits, 1):
        reason = left.get((each.code, each.edit))
        lines.append(Line(f"{number}  {each.edit}   ({each.gain}; {each.code})"))
        lines.append(
            Line(f"   {each.evidence}. {each.advice}" + (f" Left to you: {reason}." if reason else ""))
        )
    if lines or advice.further:
        return lines or [Line("None that could be typed into the script.")]
    return [Line("Nothing to change." if advice.verdict.loaders else "Nothing can be advised.")]


def _gain(finding: VerdictFinding) -> str:
    return f"{finding.gain}; " if finding.gain is not None and finding.gain.share is not None else ""
