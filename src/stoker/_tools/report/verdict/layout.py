"""How a verdict is laid out on one screen: named sections, at most 24 lines."""

from __future__ import annotations

from stoker._tools.render.terminal import COLOURS as COLOURS
from stoker._tools.render.terminal import MARGIN as MARGIN
from stoker._tools.render.terminal import MOST_LINES as MOST_LINES
from stoker._tools.render.terminal import WIDEST as WIDEST
from stoker._tools.render.terminal import Line as Line
from stoker._tools.render.terminal import fitted as fitted
from stoker._tools.render.terminal import indented as indented
from stoker._tools.render.terminal import section as section
from stoker._tools.render.terminal import show as show
from stoker._tools.report.verdict.codes import Finding

_MOST_FINDINGS = 3


def next_lines(findings: tuple[Finding, ...]) -> list[Line]:
    """What to do, the most useful first, with the edit and what it would gain."""
    lines = []
    for number, each in enumerate(findings[:_MOST_FINDINGS], 1):
        rank = 0 if number == 1 else 5 + number
        gain = "" if each.gain is None else f"   ({each.gain})"
        if each.edit is None:
            lines.append(Line(f"{number}  {each.advice}{gain}", rank))
        else:
            lines.append(Line(f"{number}  {each.edit}{gain}", rank))
            lines.append(Line(f"   {each.advice}", max(rank, 1)))
        if each.gain is not None and number == 1:
            lines.append(Line(f"   {each.gain.how}", 9))
    return lines
