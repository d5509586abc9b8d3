"""Renders a report as plain text: for a terminal, a log, a mail. Charts become their tables."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from stoker._host.secrets import cleaned
from stoker._tools.render.section import Chart, Code, Part, Prose, Remark, Report, SideBySide, Table
from stoker._tools.render.terminal import NARROWEST, WIDEST, width_of

_NARROWEST_COLUMN = 12
_MOST_ROWS, _MOST_LISTED = 40, 10
"""Of a table: what is longer is for other forms."""


def width(file: TextIO | None) -> int:
    """What a terminal has, within limits; the widest for what is none."""
    return width_of(file)


def render(report: Report, width: int = WIDEST) -> str:
    """The whole of it, in lines of at most ``width`` where words allow. Without a newline at its end."""
    width = max(NARROWEST, width)
    lines = [*_wrapped(report.title.upper(), width), *_wrapped(report.headline, width)]
    for section in report.sections:
        lines += ["", *_wrapped(section.title, width), "-" * min(width, len(_flat(section.title)))]
        for part in section.parts:
            lines += _part(part, width)
    text = cleaned("\n".join(line.rstrip() for line in lines))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def _part(part: Part, width: int) -> Iterator[str]:
    """Its lines; an empty one before what does not go on in the same paragraph."""
    match part:
        case Prose():
            yield from _wrapped(part.text, width)
        case Code():
            yield ""
            yield from (f"    {line}" for line in part.text.splitlines())
            yield ""
        case Table():
            yield ""
            yield from table(part, width)
            yield ""
        case Chart():
            yield ""
            yield from _wrapped(f"{part.title}: {part.summary}", width)
            yield from table(part.table, width)
            yield ""
        case Remark():
            yield ""
            yield from _wrapped(f"[{part.severity}] {part.code}: {part.title}", width)
            for told in (part.evidence, part.advice, part.gain and f"Gain: {part.gain}"):
                yield from _wrapped(told or "", width, "    ")
            for line in (part.edit or "").splitlines():
                yield from textwrap.wrap(line, width, initial_indent="    > ", subsequent_indent="        ")
            yield ""
        case SideBySide():
            for label, parts in part.columns:
                yield ""
                yield from _wrapped(f"== {label}", width)
                for each in parts:
                    yield from _part(each, width)


def table(table: Table, width: int) -> list[str]:
    """Cells in columns, their texts broken where there is too little room. Where there is none: the first rows, as a list."""
    cells = [tuple(map(_flat, row)) for row in (table.columns, *table.rows[:_MOST_ROWS])]
    widths = _widths(cells, table.numeric, width - 2)
    if widths is None:
        cells = cells[: 1 + _MOST_LISTED]
    lines = _listed(cells, width) if widths is None else _columns(cells, widths, table.numeric)
    left_out = len(table.rows) - len(cells) + 1
    return [*_wrapped(table.caption, width), *lines, *([f"  … {left_out} rows more"] if left_out else [])]


def _widths(cells: Sequence[tuple[str, ...]], numeric: frozenset[int], width: int) -> list[int] | None:
    """Return the width of each column: as wide as it wants, but the widest texts give way. None: there is not enough room."""
    head, *rows = cells
    count = len(head)
    found = [max((len(row[place]) for row in cells if place < len(row)), default=0) for place in range(count)]
    least = [
        _least(head[place], [row[place] for row in rows if place < len(row)], place in numeric)
        for place in range(count)
    ]
    while sum(found) + 2 * (count - 1) > width:
        wide = [place for place in range(count) if found[place] > least[place]]
        if not wide:
            return None
        found[max(wide, key=lambda place: found[place] - least[place])] -= 1
    return found


def _least(head: str, cells: Sequence[str], numeric: bool) -> int:
    """Numbers are not broken, only the head above them."""
    if not numeric:
        return _NARROWEST_COLUMN
    return max(map(len, (*head.split(), *cells)), default=0)


def _columns(cells: Sequence[tuple[str, ...]], widths: Sequence[int], numeric: frozenset[int]) -> list[str]:
    lines = []
    for row in cells:
        broken = [textwrap.wrap(cell, max(1, wide)) or [""] for cell, wide in zip(row, widths, strict=False)]
        for parts in itertools.zip_longest(*broken, fillvalue=""):
            placed = enumerate(zip(parts, widths, strict=False))
            told = (
                f"{part:>{wide}}" if place in numeric else f"{part:{wide}}" for place, (part, wide) in placed
            )
            lines.append(f"  {'  '.join(told)}")
    return lines


def _listed(cells: Sequence[tuple[str, ...]], width: int) -> list[str]:
    head, *rows = cells
    lines = []
    for row in rows:
        pairs = zip(head, row, strict=False)
        told = "; ".join(f"{name} {cell}" if name else cell for name, cell in pairs if cell)
        lines += textwrap.wrap(told, width, initial_indent="  - ", subsequent_indent="    ")
    return lines


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(_flat(text), width, initial_indent=indent, subsequent_indent=indent)


def _flat(text: str) -> str:
    """In one line, without the marks of code."""
    return " ".join(text.replace("`", "").split())
