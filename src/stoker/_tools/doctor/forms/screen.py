"""A diagnosis as people read it: what was examined, the verdict, findings with evidence and fix, and the next command."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TextIO

from stoker._record.finding import SEVERITIES, Finding, counted
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.diagnosis import Diagnosis, Skip
from stoker._tools.doctor.patches.fixes import can_be_made
from stoker._tools.render import terminal
from stoker._tools.render.terminal import COLOURS, MARGIN, WIDEST, Line, section

_LABEL = 8
"""Columns of "Fix", "Gain" and "stoker" before what they say."""
_MOST_IN_FULL = 6
"""More findings than these: low ones are told in a line."""
_MOST_REASONS = 3
_ABOUT_WORKERS = ("STK204", "STK701", "STK702")
"""Codes of checks that advise on ``num_workers`` by computing it."""


def show(
    diagnosis: Diagnosis, file: TextIO | None = None, *, verbose: bool = False, target: str | None = None
) -> None:
    """Write it to a file, standard output by default. ``target`` is what was typed, for the commands to type next."""
    terminal.show(lambda width: _lines(diagnosis, width, verbose, target), file)


def render(
    diagnosis: Diagnosis, width: int = WIDEST, *, verbose: bool = False, target: str | None = None
) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(diagnosis, width, verbose, target))


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one sentence."""
    problems = [each for each in diagnosis.findings if each.severity != "none"]
    if not problems:
        notes = len(diagnosis.findings)
        nothing = "nothing found" + (" until then" if diagnosis.interrupted else "")
        return f"{nothing}, {counted(notes, 'remark')}" if notes else nothing
    worst = problems[0]
    lead = "1 problem" if len(problems) == 1 else f"{len(problems)} problems, the worst"
    return f"{lead}: {title_of(worst)} ({worst.code}, {worst.severity})"


def title_of(finding: Finding) -> str:
    """What its check is about; its evidence when no check has the code."""
    check = check_of(finding.code)
    return check.title if check else finding.evidence


def prevented_by(finding: Finding) -> str:
    """What stoker's loader does instead, "" when it has the same failure."""
    check = check_of(finding.code)
    return check.prevented if check else ""


def _lines(diagnosis: Diagnosis, width: int, verbose: bool, target: str | None) -> list[Line]:
    lines = section("Examined", [Line(diagnosis.subject)], width)
    lines += section("Verdict", [Line(headline(diagnosis), style=COLOURS[diagnosis.worst])], width)
    if diagnosis.interrupted:
        lines += section("Stopped", [Line("before all was looked at")], width)
    crowded = len(diagnosis.findings) > _MOST_IN_FULL and not verbose
    brief = [each for each in diagnosis.findings if crowded and SEVERITIES.index(each.severity) <= 1]
    for finding in diagnosis.findings[: len(diagnosis.findings) - len(brief)]:
        lines += [Line(""), *_in_full(finding, width)]
    if brief:
        lines.append(Line(""))
    for finding in brief:
        lines += _in_brief(finding, width)
    lines.append(Line(""))
    lines += section("Passed", _rest(diagnosis, verbose), width)
    return lines + section("Next", _next(diagnosis, target, verbose, width - MARGIN), width)


def _in_full(finding: Finding, width: int) -> list[Line]:
    head = Line(f"{finding.code}  {title_of(finding)}", style=COLOURS[finding.severity])
    lines = section(_word(finding), [head], width)
    if finding.where:
        lines += _labelled("Where", finding.where, width)
    lines += _labelled("Seen", finding.evidence, width)
    if finding.edit is not None:
        lines += _labelled("Fix", str(finding.edit), width)
        lines += _labelled("", finding.advice, width)
    else:
        lines += _labelled("Fix", finding.advice, width)
    if finding.gain is not None:
        lines += _labelled("Gain", f"{finding.gain}: {finding.gain.how}", width)
    if prevented := prevented_by(finding):
        lines += _labelled("stoker", f"Its loader prevents this. {prevented}", width)
    return lines


def _in_brief(finding: Finding, width: int) -> list[Line]:
    told = finding.edit or finding.where or finding.evidence
    text = " ".join(f"{finding.code}  {title_of(finding)}: {told}".split("\n"))
    short = text if len(text) <= width - MARGIN else text[: width - MARGIN - 1].rstrip() + "…"
    return section(_word(finding), [Line(short)], width)


def _labelled(label: str, text: str, width: int) -> list[Line]:
    """Text behind the margin and a label; lines that are in it, of a stack say, stay apart and keep their indentation."""
    lead = " " * (MARGIN + _LABEL)
    lines = []
    for part in text.rstrip().splitlines() or [""]:
        own = part[: len(part) - len(part.lstrip())]
        broken = textwrap.wrap(
            part, width, initial_indent=lead, subsequent_indent=lead + own, break_on_hyphens=False
        )
        lines += [Line(each) for each in broken or [lead]]
    lines[0] = Line(f"{' ' * MARGIN}{label:{_LABEL}}{lines[0].text[len(lead) :]}")
    return lines


def _rest(diagnosis: Diagnosis, verbose: bool) -> list[Line]:
    """How many checks found nothing, and which were not made and why."""
    lines = [Line(f"{counted(len(diagnosis.passed), 'check')}, {len(diagnosis.skipped)} skipped")]
    if verbose and diagnosis.passed:
        lines.append(Line(f"Found nothing: {', '.join(diagnosis.passed)}"))
    reasons = _reasons(diagnosis.skipped)
    if verbose:
        lines += [Line(f"Skipped {', '.join(codes)}: {reason}") for reason, codes in reasons.items()]
    elif len(reasons) <= _MOST_REASONS:
        lines += [
            Line(f"Skipped {len(codes) if len(codes) > 1 else codes[0]}: {reason}")
            for reason, codes in reasons.items()
        ]
    return lines


def _reasons(skipped: tuple[Skip, ...]) -> dict[str, list[str]]:
    """Codes by reason, the most frequent first."""
    counts = Counter(each.reason for each in skipped)
    return {
        reason: [each.code for each in skipped if each.reason == reason] for reason, _ in counts.most_common()
    }


def _next(diagnosis: Diagnosis, target: str | None, verbose: bool, room: int) -> list[Line]:
    commands = []
    if diagnosis.findings:
        commands.append((f"stoker explain {diagnosis.findings[0].code}", "its page: why, example, fix"))
        if target is not None and any(
            can_be_made(each, diagnosis.facts.get("target")) for each in diagnosis.findings
        ):
            commands.append((f"stoker doctor {target} --fix", "the changes as a patch"))
        if target is not None and any(each.code in _ABOUT_WORKERS for each in diagnosis.findings):
            commands.append((f"stoker tune {target}", "measures how many workers to take, and why"))
    elif target is None:
        commands.append(("stoker doctor train.py:dataset", "examines a dataset or a loader as well"))
    if len(_reasons(diagnosis.skipped)) > _MOST_REASONS and not verbose:
        again = f"stoker doctor {target} --verbose" if target else "stoker doctor --verbose"
        commands.append((again, "why checks were skipped"))
    return terminal.commands(commands, room)


def _word(finding: Finding) -> str:
    return "note" if finding.severity == "none" else finding.severity
