"""Shows a verdict on traces on one screen, like a run's verdict, or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TextIO

from stoker._host.secrets import masked_values
from stoker._tools.render import terminal
from stoker._tools.render.terminal import COLOURS, WIDEST, Line, fitted, indented, section
from stoker._tools.report.profiler.verdict import TraceVerdict
from stoker._tools.report.verdict.screen import cost_lines, next_lines

_VERSION = 1


def show(verdict: TraceVerdict, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default."""
    terminal.show(lambda width: _lines(verdict, width), file)


def render(verdict: TraceVerdict, width: int = WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(verdict, width))


def as_json(verdict: TraceVerdict) -> dict[str, Any]:
    """Return all of it as plain values."""
    return {"format": "stoker-trace-verdict", "version": _VERSION, **masked_values(asdict(verdict))}


def _lines(verdict: TraceVerdict, width: int) -> list[Line]:
    lines = section("Verdict", [Line(verdict.headline, style=COLOURS.get(verdict.severity, ""))], width)
    lines += indented([*cost_lines(verdict.cost), *(Line(each, 4) for each in verdict.notes)], width)
    lines += section("Why", [Line(each, place) for place, each in enumerate(verdict.why)], width)
    measured = [Line(each, 2 + place) for place, each in enumerate(verdict.evidence)]
    lines += section("Evidence", [*_table(verdict), *measured], width)
    lines += section("Next", next_lines(verdict.findings), width)
    return fitted(lines)


def _table(verdict: TraceVerdict) -> list[Line]:
    """Parts of the wall, the largest first."""
    shares = sorted(verdict.shares, key=lambda each: -each.ns)
    wide = max((len(each.words) for each in shares), default=0)
    return [
        Line(
            f"{each.words:{wide}}  {100 * each.share:5.1f} %  {each.ns / 1e9:8.3f} s",
            0 if each.share > 0.005 else 8,
        )
        for each in shares
    ]
