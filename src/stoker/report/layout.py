"""How an answer is laid out on one screen: named sections, at most 24 lines of 80 to 100 columns, which read without colour.

Every line has a rank. When there are too many, those of the highest rank go first; rank 0 stays.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import NamedTuple, TextIO

from stoker.report.finding import Finding

MOST_LINES = 24
WIDEST = 100
COLOURS = {"none": "green", "low": "default", "moderate": "yellow", "high": "red"}
"""Of the first line, by how bad it is."""
_NARROWEST = 80
_MOST_FINDINGS = 3
_MARGIN = 10
_ASCII = str.maketrans({"→": "->", "−": "-", "×": "x", "…": "...", "·": ".", "–": "-", "µ": "u"})


class Line(NamedTuple):
    """What is shown, how dispensable it is, and a style of rich's."""

    text: str
    rank: int = 0
    style: str = ""


def show(lines_for: Callable[[int], list[Line]], file: TextIO | None = None) -> None:
    """Write lines, made for a width, to a file, standard output by default: coloured when that is a terminal, plain otherwise."""
    file = sys.stdout if file is None else file
    terminal = file.isatty()
    lines = lines_for(_width(terminal))
    if not terminal:
        for line in lines:
            file.write(_encodable(line.text, file) + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(_encodable(line.text, file))
        if line.text[:1].strip():
            text.stylize("bold", 0, _MARGIN)
        if line.style:
            text.stylize(line.style, _MARGIN)
        console.print(text)


def section(name: str, lines: list[Line], width: int) -> list[Line]:
    """Lines behind a margin in which the section's name stands."""
    found = indented(lines, width)
    if found:
        found[0] = found[0]._replace(text=f"{name:{_MARGIN}}{found[0].text[_MARGIN:]}")
    return found


def indented(lines: list[Line], width: int) -> list[Line]:
    """Behind the margin, and broken at the width; what continues a line keeps its rank and is indented as its text is."""
    found = []
    for line in lines:
        own = line.text[: len(line.text) - len(line.text.lstrip())]
        hang = own + ("   " if line.text.lstrip()[:2] in ("1 ", "2 ", "3 ") else "")
        broken = textwrap.wrap(
            line.text.strip(), width - _MARGIN, initial_indent=own, subsequent_indent=hang,
            replace_whitespace=False, drop_whitespace=True,
        ) if len(line.text) > width - _MARGIN else [line.text]  # fmt: skip
        found += [line._replace(text=" " * _MARGIN + each) for each in broken]
    return found


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


def _width(terminal: bool) -> int:
    columns = shutil.get_terminal_size((WIDEST, MOST_LINES)).columns if terminal else WIDEST
    return max(_NARROWEST, min(WIDEST, columns))


def _encodable(text: str, file: TextIO) -> str:
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_ASCII).encode("ascii", "replace").decode()
    return text
