"""A comparison on one screen: the verdict, a row for every loader that was run, and notes on the rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TextIO

from stoker._record.finding import capitalised, counted, duration, size
from stoker._tools.render import terminal
from stoker._tools.render.terminal import MARGIN, WIDEST, Line, fitted, section
from stoker._tools.tune.comparison import Comparison, Lane
from stoker._tools.tune.edits import call
from stoker._tools.tune.forms import words

_HEADS = ("", "setting", "batches/s", "time", "CPU", "memory", "stall")
_NAME = 24
"""Columns of a name."""


def show(found: Comparison, file: TextIO | None = None) -> None:
    """Write the screen to a file, standard output by default."""
    terminal.show(lambda width: _lines(found, width), file)


def render(found: Comparison, width: int = WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(found, width))


def as_json(found: Comparison) -> str:
    """One JSON document, without a newline at its end."""
    return json.dumps(found.as_dict(), indent=2, allow_nan=False)


def _lines(found: Comparison, width: int) -> list[Line]:
    batches = "" if found.batch_size is None else f", batches of {found.batch_size}"
    lines = section("Raced", [Line(f"{found.target}{batches}")], width)
    lines += section("Verdict", [Line(found.verdict, style="red" if found.failure else "green")], width)
    lines += section("Evidence", _table(found, width), width)
    lines += section("Read with", _context(found), width)
    tuned = found.tuned
    if tuned is not None and not tuned.point.failure:
        lines += section(
            "Next",
            terminal.code(call(tuned.setting, found.batch_size, kept=found.kept), width - MARGIN),
            width,
        )
    notes = [Line(each, place and 2 + place) for place, each in enumerate(found.warnings)]
    return fitted(lines + section("Note", notes, width))


def _table(found: Comparison, width: int) -> list[Line]:
    """The table, with as many columns as fit. "time" is relative to the first row's, with its 90 % interval."""
    if not found.lanes:
        return []
    rows = [_HEADS, *(_row(each, width) for each in found.lanes)]
    lines = [Line(each) for each in terminal.columns(rows, width - MARGIN, left=2, fewest=3)]
    failed = [each for each in found.lanes if each.point.failure]
    return lines + [Line(f"Failed: {each.name}: {each.point.failure}", 2) for each in failed]


def _row(lane: Lane, width: int) -> tuple[str, ...]:
    point = lane.point
    whose = " (torch)" if point.setting.engine == "torch" and "torch" not in lane.name else ""
    name = _cut(lane.name + whose, _NAME)
    setting = _cut(words.setting_name(replace(point.setting, engine="stoker")), (width - MARGIN) // 4 - 2)
    if point.failure:
        return (name, setting, "failed", *["–"] * 4)
    return (
        name,
        setting,
        f"{lane.per_second:,.0f}" if lane.per_second >= 100 else f"{lane.per_second:.3g}",
        f"{point.ratio.middle:.2f} ({point.ratio.low:.2f}–{point.ratio.high:.2f})",
        duration(point.cpu_ns / 1e9),
        size(point.memory_bytes) if point.memory_bytes else "–",
        f"{point.stall:.0%}",
    )


def _context(found: Comparison) -> list[Line]:
    step = (
        f"a step of {duration(found.demand.step_ns / 1e9)}"
        if found.demand.step_ns
        else "batches taken as fast as they come"
    )
    told = [f"{step}, {counted(found.rounds, 'round')} in turns, {found.spent_s:.0f} s"]
    if found.tuned_by:
        told.append(f"the setting of stoker tuned: {found.tuned_by}")
    if found.stopped == "interrupted":
        told.append("it was stopped before its time")
    if found.alike:
        told.append("both engines gave equal batches")
    else:
        seen = (
            "the engines gave different batches"
            if found.alike is False
            else "whether both gave equal batches was not seen"
        )
        told.append(f"{seen}: {found.alike_text}" if found.alike_text else seen)
    return [Line(f"{capitalised(each)}.", place) for place, each in enumerate(told)]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip(", ") + "…"
