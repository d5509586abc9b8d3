"""A report as plain text: for a terminal, a log, a mail. Charts are their tables."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from stoker.report.page.section import Beside, Chart, Code, Part, Prose, Remark, Report, Table

WIDEST = 100
NARROWEST = 60
_MOST_ROWS = 40
"""Of a table: what is longer is for other forms."""


def width(file: TextIO | None) -> int:
    """What a terminal has, within limits; the widest for what is none."""
    if file is None or not file.isatty():
        return WIDEST
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


def render(report: Report, width: int = WIDEST) -> str:
    """The whole of it, in lines of at most ``width`` where words allow. Without a newline at its end."""
    width = max(NARROWEST, width)
    lines = [*_wrapped(report.title.upper(), width), *_wrapped(report.headline, width)]
    for section in report.sections:
        lines += ["", *_wrapped(section.title, width), "-" * min(width, len(section.title))]
        for part in section.parts:
            lines += _part(part, width)
    return "\n".join(line.rstrip() for line in lines)


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
            for told in (part.evidence, part.advice, part.edit, part.gain):
                if told:
                    yield from _wrapped(told, width, "    ")
        case Beside():
            for label, parts in part.columns:
                yield ""
                yield from _wrapped(f"== {label}", width)
                for each in parts:
                    yield from _part(each, width)


def table(table: Table, width: int) -> list[str]:
    """Cells in columns where there is room, otherwise a line for each cell with the column's name before it."""
    caption = _wrapped(table.caption, width) if table.caption else []
    rows = table.rows[:_MOST_ROWS]
    more = [f"… {len(table.rows) - len(rows)} rows more"] if len(table.rows) > len(rows) else []
    cells = [tuple(map(_flat, row)) for row in (table.columns, *rows)]
    count = len(table.columns)
    widths = [max(len(row[place]) for row in cells if place < len(row)) for place in range(count)]
    if sum(widths) + 2 * (count - 1) + 2 > width:
        return [*caption, *_listed(cells, width), *more]
    return [*caption, *("  " + _line(row, widths, table.numeric) for row in cells), *more]


def _listed(cells: Sequence[tuple[str, ...]], width: int) -> list[str]:
    head, *rows = cells
    lines = []
    for row in rows:
        told = "; ".join(
            f"{name} {cell}" if name else cell for name, cell in zip(head, row, strict=False) if cell
        )
        lines += textwrap.wrap(told, width, initial_indent="  - ", subsequent_indent="    ")
    return lines


def _line(row: Sequence[str], widths: Sequence[int], numeric: frozenset[int]) -> str:
    return "  ".join(
        f"{cell:>{wide}}" if place in numeric else f"{cell:{wide}}"
        for place, (cell, wide) in enumerate(zip(row, widths, strict=False))
    )


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(_flat(text), width, initial_indent=indent, subsequent_indent=indent)


def _flat(text: str) -> str:
    """In one line, without the marks of code."""
    return " ".join(text.replace("`", "").split())
