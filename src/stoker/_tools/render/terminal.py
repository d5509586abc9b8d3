"""Lines for a terminal or a file: 60 to 100 columns, behind a margin, which read without colour."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TextIO

from stoker._host.secrets import cleaned, masked
from stoker._tools.render import code_lines

NARROWEST, WIDEST = 60, 100
"""Columns. A narrower terminal breaks lines by itself."""
MARGIN = 10
MOST_LINES = 24
"""Of one screen."""
COLOURS = {"none": "green", "low": "default", "moderate": "yellow", "high": "red"}
"""Of what is said, by how bad it is."""
_NUMBER = re.compile(r"\d{1,2}  +")
"""Of a list. A count in a sentence has one space behind it."""
_ASCII = str.maketrans({"→": "->", "−": "-", "×": "x", "…": "...", "·": ".", "–": "-", "µ": "u"})


class Line(NamedTuple):
    """What is shown, how dispensable it is (rank 0 stays), and a style of rich's for all behind the margin.

    A ``whole`` line is not broken, whatever its length: it is to be copied.
    """

    text: str
    rank: int = 0
    style: str = ""
    whole: bool = False


def show(lines_for: Callable[[int], list[Line]], file: TextIO | None = None) -> None:
    """Write lines, made for a width, to a file, standard output by default.

    Coloured when that is a terminal and NO_COLOR is not set, plain otherwise; in ASCII where the encoding has nothing better.
    """
    file = sys.stdout if file is None else file
    if file is None:  # a process without a standard output
        return
    terminal = file.isatty()
    lines = lines_for(width_of(file))
    if not terminal:
        for line in lines:
            file.write(encodable(line.text, file) + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True, no_color=bool(os.environ.get("NO_COLOR")))
    for line in lines:
        text = Text(encodable(line.text, file))
        if line.text[:1].strip():
            text.stylize("bold", 0, MARGIN)
        if line.style:
            text.stylize(line.style, MARGIN)
        console.print(text)


def text_of(lines: Iterable[Line]) -> str:
    """The plain text of lines, without a newline at its end."""
    return cleaned("\n".join(line.text for line in lines))


def section(name: str, lines: list[Line], width: int) -> list[Line]:
    """Lines behind a margin in which the section's name stands."""
    found = indented(lines, width)
    if found:
        found[0] = found[0]._replace(text=f"{name:{MARGIN}}{found[0].text[MARGIN:]}")
    return found


def indented(lines: list[Line], width: int) -> list[Line]:
    """Indent lines behind the margin and break them at the width. What continues a line keeps its rank and its indent.

    Secrets are hidden here: a line that is broken may not show them any more.
    """
    found = []
    for line in lines:
        line = line._replace(text=masked(line.text))
        own = line.text[: len(line.text) - len(line.text.lstrip())]
        number = _NUMBER.match(line.text.lstrip())
        hang = own + " " * (0 if number is None else number.end())
        broken = textwrap.wrap(
            line.text.strip(), width - MARGIN, initial_indent=own, subsequent_indent=hang,
            replace_whitespace=False, drop_whitespace=True, break_on_hyphens=False,
        ) if len(line.text) > width - MARGIN and not line.whole else [line.text]  # fmt: skip
        found += [line._replace(text=" " * MARGIN + each) for each in broken]
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


def columns(
    rows: Sequence[Sequence[str]], room: int, *, left: int = 1, fewest: int | None = None
) -> list[str]:
    """Rows of cells below each other: the first ``left`` flush left, the others right.

    Where there is no ``room``, the last columns go until ``fewest`` are left; without ``fewest`` all stay.
    """
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    while fewest is not None and len(widths) > fewest and sum(widths) + 2 * (len(widths) - 1) > room:
        widths.pop()
    lines = []
    for row in rows:
        cells = [f"{cell:{wide}}" for cell, wide in zip(row[:left], widths, strict=False)]
        cells += [f"{cell:>{wide}}" for cell, wide in zip(row[left:], widths[left:], strict=False)]
        lines.append("  ".join(cells).rstrip())
    return lines


def commands(pairs: Sequence[tuple[str, str]], room: int) -> list[Line]:
    """What to type next and what it does: a line each, or below each other where that needs more than ``room``."""
    wide = max((len(command) for command, _ in pairs), default=0)
    if all(wide + 3 + len(what) <= room for _, what in pairs):
        return [Line(f"{command:{wide}}   {what}") for command, what in pairs]
    return [line for command, what in pairs for line in (Line(command, whole=True), Line(f"  {what}"))]


def code(text: str, room: int, *, rank: int = 0, language: str = "python") -> list[Line]:
    """Code to copy: broken where it may be, and not at the width."""
    return [Line(each, rank, whole=True) for each in code_lines.fitted(text, room, language)]


def width_of(file: TextIO | None) -> int:
    """Columns for what is written to a file: a terminal's own, or those of COLUMNS, within limits; the widest for any other."""
    return max(NARROWEST, min(WIDEST, known_width(file) or WIDEST))


def known_width(file: TextIO | None) -> int | None:
    """Columns of a terminal, or of COLUMNS; None for a file or a pipe, where lines may have any length."""
    if (file is not None and file.isatty()) or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size((WIDEST, MOST_LINES)).columns
    return None


def encodable(text: str, file: TextIO) -> str:
    """The text, or what the file's encoding can say of it; without what would steer a terminal."""
    text = cleaned(text)
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_ASCII).encode("ascii", "replace").decode()
    return text
