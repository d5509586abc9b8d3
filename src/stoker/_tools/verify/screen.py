"""The answers of ``stoker verify`` as lines for a terminal."""

from __future__ import annotations

from typing import TextIO

from stoker._tools.render import terminal
from stoker._tools.render.terminal import Line, fitted, section
from stoker._tools.verify.answer import VerifyAnswer, counted, numbers
from stoker._tools.verify.codes import CODES
from stoker._tools.verify.verification import Verification

_TITLES = {"files": "Files", "runs": "Runs", "samples": "Samples", "legs": "Legs", "order": "Order"}
_MARKS = {"ok": "ok", "note": "note", "fault": "WRONG"}
_STYLES = {"ok": "", "note": "", "fault": "red"}
_RANKS = {"fault": 0, "ok": 1, "note": 2}
_MOST_ADVICE = 4
_UNKNOWN = {"part-unknown", "unknown", "opaque-indices", "no-numbers", "too-many"}
"""Answers that which samples were handed over is not known."""


def show(found: Verification, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default."""
    terminal.show(lambda width: lines(found, width), file)


def lines(found: Verification, width: int) -> list[Line]:
    """The questions and their answers, and a last line that sums them up."""
    shown: list[Line] = []
    several = len({each.loader for each in found.answers if each.loader}) > 1
    for question, title in _TITLES.items():
        answers = [each for each in found.answers if each.question == question]
        shown += section(title, [_line(each, several) for each in answers], width)
    last = section("Verdict", [_verdict(found)], width) + section("Next", _advice(found), width)
    return [*fitted(shown)[: terminal.MOST_LINES - 1 - len(last)], *last]


def _line(answer: VerifyAnswer, several: bool) -> Line:
    where = []
    if several and answer.loader:
        where.append(answer.loader)
    if answer.epochs:
        where.append(f"epoch{'s' if len(answer.epochs) > 1 else ''} {numbers(answer.epochs)}")
    begin = f"{_MARKS[answer.level]:5} " + (f"{', '.join(where)}: " if where else "")
    return Line(begin + answer.text, _RANKS[answer.level], _STYLES[answer.level])


def _advice(found: Verification) -> list[Line]:
    """What to do about each kind of fault."""
    faults = dict.fromkeys(each.code for each in found.answers if each.level == "fault")
    return [Line(f"{CODES[code].advice} ({code})") for code in list(faults)[:_MOST_ADVICE]]


def _verdict(found: Verification) -> Line:
    receipts = sum(len(run.receipts) for loader in found.loaders for run in loader.runs)
    read = f"{counted(receipts, 'receipt')} of {counted(len(found.loaders), 'loader')}"
    if found.faults:
        text = f"{counted(found.faults, 'thing')} {'is' if found.faults == 1 else 'are'} wrong in {read}."
        return Line(text, style="red")
    if any(each.code in _UNKNOWN for each in found.answers):
        return Line(f"Nothing wrong was found in {read}, but not all can be known.")
    return Line(f"Nothing is wrong in {read}.", style="green")
