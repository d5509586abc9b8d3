"""How a verdict is laid out on one screen: named sections, at most 24 lines.

Every line has a rank. When there are too many, those of the highest rank go first; rank 0 stays.
"""

from __future__ import annotations

from stoker._screen import COLOURS as COLOURS
from stoker._screen import WIDEST as WIDEST
from stoker._screen import Line as Line
from stoker._screen import indented as indented
from stoker._screen import section as section
from stoker._screen import show as show
from stoker.report.finding import Finding

MOST_LINES = 24
_MOST_FINDINGS = 3


def fitted(lines: list[Line]) -> list[Line]:
    """At most as many as a screen has: whole ranks go, and then whatever is last."""
    while len(lines) > MOST_LINES and any(line.rank for line in lines):
        worst = max(line.rank for line in lines)
        kept = [line for line in lines if line.rank < worst or line.text[:1].strip()]
        if len(kept) == len(lines):  # a section's first line keeps its title
            lines = [line._replace(rank=0) if line.rank == worst else line for line in lines]
        else:
            lines = kept
    return lines[:MOST_LINES]


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
