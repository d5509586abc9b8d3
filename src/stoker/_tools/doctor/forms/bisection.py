"""A bisection as people read it: the table of trials, the conclusion, and the next command. Also as JSON."""

from __future__ import annotations

import re
from typing import Any, TextIO

from stoker._host.code_location import is_library
from stoker._record.finding import counted, cut, duration
from stoker._tools.doctor.bisection.bisect import Bisection
from stoker._tools.doctor.bisection.procedure import BisectionTrial
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.facts.trial import BisectionOutcome
from stoker._tools.doctor.forms.data import plain
from stoker._tools.render import terminal
from stoker._tools.render.terminal import COLOURS, MARGIN, WIDEST, Line, section

_VERSION = 1
_STACK_LINES = 8
_LIBRARY_LINES = 2
_CODE = "    "
"""What code stands behind among paragraphs."""
_LEAST_OUTCOME = 24
"""Columns of an outcome beside its setting; with fewer it stands below."""
_FRAME = re.compile(r'File "(.+)", line')
_ERROR = re.compile(
    r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Stalled|Iteration)\b.*", re.MULTILINE
)


def show(found: Bisection, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default."""
    terminal.show(lambda width: _lines(found, width), file)


def render(found: Bisection, width: int = WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(found, width))


def as_json(found: Bisection) -> dict[str, Any]:
    """Plain values."""
    return {
        "format": "stoker-bisection",
        "version": _VERSION,
        "subject": found.subject,
        "own": plain(found.own),
        "trials": [
            {**plain(each.setting), "change": each.setting.change, "outcome": _outcome_data(each.outcome)}
            for each in found.trials
        ],
        "conclusion": found.conclusion.text,
        "suspects": list(found.conclusion.suspects),
        "works": found.conclusion.works,
        "code": found.code,
        "advice": found.advice or None,
        "interrupted": found.interrupted,
        "cut_short": found.cut_short or None,
    }


def headline_of(text: str) -> str:
    """The line of a traceback that says what it was: of a worker's inside another, the innermost."""
    lines = _ERROR.findall(text)
    wrapped = re.search(r"Caught (\w+) in DataLoader worker", text)
    if wrapped:
        lines = [line for line in lines if line.startswith(wrapped[1])] or lines
    chosen = lines[-1] if lines else (text.strip().splitlines() or [""])[-1]
    return " ".join(chosen.split())


def _outcome_data(outcome: BisectionOutcome) -> dict[str, Any]:
    return {
        "what": outcome.what,
        "batches": outcome.batches,
        "seconds": outcome.seconds,
        "text": outcome.text,
        "stack": outcome.stack,
        "printed": outcome.printed,
    }


def _lines(found: Bisection, width: int) -> list[Line]:
    lines = section("Examined", [Line(found.subject)], width)
    lines += [Line(""), *_table(found, width), Line("")]
    failure = found.conclusion.failure
    if found.interrupted or found.cut_short:
        lines += section("Stopped", [Line(found.cut_short or "before all trials were made")], width)
    colour = COLOURS["high" if not found.conclusion.works else "moderate" if failure else "none"]
    lines += section("Verdict", [Line(found.conclusion.text, style=colour)], width)
    if failure is not None:
        lines += section("Seen", _seen(failure), width)
    check = check_of(found.code or "")
    if check is not None:
        lines += section("Known as", [Line(f"{check.code}  {check.title}")], width)
        lines += section("Fix", _fix(found.advice, width - MARGIN), width)
    return lines + section("Next", [Line(_next(found), whole=True)], width)


def _fix(advice: str, room: int) -> list[Line]:
    lines = []
    for each in paragraphs(advice):
        lines += terminal.code(each, room) if each.startswith(_CODE) else [Line(each)]
    return lines


def paragraphs(text: str) -> list[str]:
    """Markdown as lines of a screen: prose is joined to paragraphs, the lines of a code block stay as they are, indented."""
    found: list[str] = []
    inside = joined = False
    for line in text.strip().splitlines():
        if line.lstrip().startswith("```"):
            inside, joined = not inside, False
        elif inside:
            found.append(f"{_CODE}{line}".rstrip())
        elif not line.strip():
            joined = False
        elif joined:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
            joined = True
    return found


def _table(found: Bisection, width: int) -> list[Line]:
    rows = [("", "workers", "start", "changed", "outcome")]
    rows += [_row(number, each, found) for number, each in enumerate(found.trials, 1)]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    lines = []
    for row in rows:
        text = "  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=False))
        room = width - MARGIN - len(text) - 2
        if room < _LEAST_OUTCOME:
            lines.append(Line(text.rstrip()))
            lines += (
                [Line(f"{_CODE}{cut(row[4], width - MARGIN - len(_CODE))}")] if row is not rows[0] else []
            )
        else:
            lines.append(Line(f"{text}  {cut(row[4], room)}".rstrip()))
    return section("Trials", lines, width)


def _row(number: int, trial: BisectionTrial, found: Bisection) -> tuple[str, str, str, str, str]:
    setting, outcome = trial.setting, trial.outcome
    own = found.own.method if found.own else ""
    method = "-" if setting.workers == 0 else setting.method or own
    return (str(number), str(setting.workers), method, setting.change or "as it is", _words(outcome))


def _words(outcome: BisectionOutcome) -> str:
    if outcome.ok:
        return f"ok: {counted(outcome.batches, 'batch', 'batches')} in {duration(outcome.seconds)}"
    if outcome.what == "error":
        return f"error: {headline_of(outcome.text)}"
    return outcome.text if outcome.text.startswith(outcome.what) else f"{outcome.what}: {outcome.text}"


def _seen(failure: BisectionTrial) -> list[Line]:
    outcome = failure.outcome
    lines = [Line(headline_of(outcome.text) if outcome.what == "error" else _words(outcome))]
    if outcome.what != "error" and (said := _ERROR.findall(outcome.printed)):
        lines.append(Line(f"printed: {' '.join(said[-1].split())}"))
    frames = outcome.stack.splitlines()
    own = [line for line in frames if (match := _FRAME.search(line)) and not is_library(match[1])]
    return lines + [Line(line) for line in own[-_STACK_LINES:] or frames[-_LIBRARY_LINES:]]


def _next(found: Bisection) -> str:
    if found.code:
        return f"stoker explain {found.code}"
    return f"stoker doctor {found.subject}"
