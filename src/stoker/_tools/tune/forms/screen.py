"""A tuning on one screen: the verdict, the reasons, the measured points, and the edits."""

from __future__ import annotations

from typing import TextIO

from stoker._record.finding import Edit, capitalised, counted
from stoker._tools.render import terminal
from stoker._tools.render.terminal import MARGIN, WIDEST, Line, fitted, section
from stoker._tools.tune.edits import call
from stoker._tools.tune.forms import words
from stoker._tools.tune.result import Tuning


def show(tuning: Tuning, file: TextIO | None = None, *, target: str | None = None) -> None:
    """Write the screen to a file, standard output by default. ``target`` is what the user typed, for the suggested commands."""
    terminal.show(lambda width: _lines(tuning, width, target), file)


def render(tuning: Tuning, width: int = WIDEST, *, target: str | None = None) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(tuning, width, target))


def _lines(tuning: Tuning, width: int, target: str | None) -> list[Line]:
    size = "" if tuning.batch_size is None else f", batches of {tuning.batch_size}"
    lines = section("Tuned", [Line(f"{tuning.target}{size}")], width)
    verdict = [Line(tuning.verdict, style=_colour(tuning))]
    if gain := words.saving_text(tuning):
        verdict.append(Line(gain, 1))
    if tuning.failure and tuning.failure not in tuning.verdict:
        verdict.append(Line(tuning.failure))
    lines += section("Verdict", verdict, width)
    lines += section("Why", [Line(each, place and 2 + place) for place, each in enumerate(tuning.why)], width)
    lines += section("Evidence", _evidence(tuning, width), width)
    lines += section("Next", _next(tuning, target, width - MARGIN), width)
    cache = words.cache_lines(tuning)
    told = [Line(each) for each in cache[:1]] + terminal.code("".join(cache[1:]), width - MARGIN, rank=3)
    lines += section("Cache", told if cache else [], width)
    lines += section(
        "Note", [Line(each, place and 2 + place) for place, each in enumerate(tuning.warnings)], width
    )
    return fitted(lines)


def _evidence(tuning: Tuning, width: int) -> list[Line]:
    lines = [*_table(tuning, width), *_measured(tuning)]
    return [lines[0]._replace(rank=0), *lines[1:]]  # a section's first line stays, and must stay whole


def _table(tuning: Tuning, width: int) -> list[Line]:
    points = words.shown_points(tuning)
    if not points:
        return []
    longest = max(25, (width - MARGIN) // 3)
    rows = [words.HEADS, *(words.row(each, tuning, longest) for each in points)]
    if all(each.predicted_ns is None for each in points):
        rows = [row[:-1] for row in rows]
    lines = [Line(each) for each in terminal.columns(rows, width - MARGIN, fewest=2)]
    failed = [each for each in points if each.failure]
    return lines + [Line(f"Failed: {words.setting_name(each.setting)}: {each.failure}", 3) for each in failed]


def _measured(tuning: Tuning) -> list[Line]:
    """Notes on the points."""
    lines = [Line(words.demand_text(tuning), 2)]
    facts = [each for each in (words.host_text(tuning), words.work_text(tuning)) if each]
    if facts:
        text = "; ".join(facts)
        lines.append(Line(f"There {text}." if tuning.host is not None else f"{capitalised(text)}.", 4))
    if tuning.limit:
        lines.append(Line(f"What limits next: {tuning.limit}", 3))
    lines += [Line(each, 6) for each in (words.scaling_text(tuning), words.prediction_text(tuning)) if each]
    disturbed = sum(each.disturbed for each in tuning.points)
    blocks = sum(each.blocks for each in tuning.points)
    counts = f", {counted(blocks, 'block')}" + (f", {disturbed} set aside as disturbed" if disturbed else "")
    ended = f" Ended: {tuning.stopped}." if tuning.stopped else ""
    lines.append(Line(f"{tuning.spent_s:.0f} s{counts if tuning.points else ''}.{ended}", 5))
    return lines


def _next(tuning: Tuning, target: str | None, room: int) -> list[Line]:
    lines = []
    for each in _edits(tuning):
        lines += terminal.code(str(each), room) if each.kind == "shown" else [Line(str(each))]
    if not lines and tuning.changed:  # the loader chooses by itself
        taken = [Line('Nothing to type: num_workers="auto" begins with this from the next run on.')]
        lines += taken if tuning.profile else terminal.code(call(tuning.recommended, tuning.batch_size), room)
    elif not lines:
        lines.append(Line("Nothing to change." if not tuning.failure else "Nothing was changed."))
    commands = []
    made = any(each.kind != "shown" for each in tuning.edits) and not tuning.failure and tuning.measured
    if target is not None and tuning.file is not None and made:
        commands.append((f"stoker tune {target} --fix", "tunes again and prints the patch; --write makes it"))
    if target is not None and not tuning.demand.step_ns and not tuning.failure:
        commands.append((f"stoker tune {target} --step-ms N", "tunes to what a step needs, not to the most"))
    if tuning.profile and typed(tuning):
        plain = tuning.recommended.kind.processes and tuning.recommended.threads == 1
        what = "in the call takes this up from the next run on"
        commands.append(('num_workers="auto"', what if plain else f"{what}, but without threads"))
    told = terminal.commands(commands, room)
    return lines + [each._replace(rank=6 + place) for place, each in enumerate(told)]


def typed(tuning: Tuning) -> list[str]:
    """The edits, a line each."""
    return [str(each) for each in _edits(tuning)]


def _edits(tuning: Tuning) -> tuple[Edit, ...]:
    return tuning.edits or ((tuning.edit,) if tuning.edit is not None else ())


def _colour(tuning: Tuning) -> str:
    if tuning.failure:
        return "red"
    return "green" if tuning.separated or not tuning.changed else "yellow"
