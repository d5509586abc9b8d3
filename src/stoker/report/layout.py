"""How a verdict is laid out on one screen: named sections, at most 24 lines."""

from __future__ import annotations

from stoker._screen import COLOURS as COLOURS
from stoker._screen import MARGIN as MARGIN
from stoker._screen import MOST_LINES as MOST_LINES
from stoker._screen import WIDEST as WIDEST
from stoker._screen import Line as Line
from stoker._screen import fitted as fitted
from stoker._screen import indented as indented
from stoker._screen import section as section
from stoker._screen import show as show
from stoker.report.finding import Finding

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
