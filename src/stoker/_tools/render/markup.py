"""Renders the parts of a report as HTML. All texts are escaped; ids are made safe and unique."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

from stoker._tools.render.section import Chart, Code, Part, Prose, Remark, Section, SideBySide, Table

MOST_ROWS = 500
"""Of one table: what is beyond is counted, and in the raw data."""

_LONG, _LONG_LENGTH = ' class="long"', 40
"""A sentence in a cell keeps some width where the table scrolls, so that it does not become a tower of words."""

SEVERITIES = {"high": "Serious", "moderate": "Moderate", "low": "Minor", "none": "For information"}
"""In words, for a finding. Colour and shape say it too."""

_SHAPES = {
    "high": '<path d="M8 2h8l6 6v8l-6 6H8l-6-6V8z"/><path class="in" d="M12 7v6M12 16.5v.5"/>',
    "moderate": '<path d="M12 2.5 22.5 21h-21z"/><path class="in" d="M12 9.5v5M12 17.5v.5"/>',
    "low": '<path d="M12 2 22 12 12 22 2 12z"/><path class="in" d="M12 11v6M12 7.5V8"/>',
    "none": '<circle cx="12" cy="12" r="10"/><path class="in" d="M12 11v6M12 7.5V8"/>',
    "good": '<circle cx="12" cy="12" r="10"/><path class="in" d="m7.5 12.5 3 3 6-6.5"/>',
}
"""Octagon, triangle, diamond, disc, and a tick in it for a whole report: told apart without colour."""


def shape(severity: str) -> str:
    """An icon that says nothing by itself: a word stands beside it."""
    inner = _SHAPES.get(severity, _SHAPES["low"])
    return f'<svg class="shape" viewBox="0 0 24 24" aria-hidden="true" focusable="false">{inner}</svg>'


def known(severity: str) -> str:
    """A severity that the style sheet knows."""
    return severity if severity in SEVERITIES else "none"


def text(plain: str) -> str:
    """Escaped, with `code` set as such. A backtick without a partner stays one."""
    pieces = escape(plain).split("`")
    if len(pieces) % 2 == 0:
        pieces[-2:] = [f"{pieces[-2]}`{pieces[-1]}"]
    return "".join(f"<code>{each}</code>" if number % 2 else each for number, each in enumerate(pieces))


class Markup:
    """Writes parts and remembers which ids are taken and which charts there are (``charts``: id to spec)."""

    def __init__(self) -> None:
        self.charts: dict[str, dict[str, Any]] = {}
        self._taken: set[str] = set()

    def name(self, wanted: str) -> str:
        """An id like the one that is wanted, and nobody else's."""
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", wanted).strip("-") or "part"
        number, found = 1, plain
        while found in self._taken:
            number += 1
            found = f"{plain}-{number}"
        self._taken.add(found)
        return found

    def section(self, section: Section) -> tuple[str, str]:
        """Its id and all of it."""
        name = self.name(section.id)
        heading = self.name(f"{name}-title")
        return name, (
            f'<section id="{name}" aria-labelledby="{heading}">'
            f'<h2 id="{heading}">{text(section.title)}</h2>'
            f"{self.parts(section.parts, 3)}</section>"
        )

    def parts(self, parts: Iterable[Part], level: int) -> str:
        """One after the other; headings among them have this level."""
        return "".join(self._part(each, level) for each in parts)

    def _part(self, part: Part, level: int) -> str:
        match part:
            case Prose():
                return f"<p>{text(part.text)}</p>"
            case Code():
                return code(part.text, part.language)
            case Table():
                return table(part)
            case Chart():
                return self._chart(part)
            case Remark():
                return self._remark(part, level)
            case SideBySide():
                return f'<div class="beside">{"".join(self._column(*each, level) for each in part.columns)}</div>'

    def _column(self, label: str, parts: tuple[Part, ...], level: int) -> str:
        return f'<div class="column"><h{level}>{text(label)}</h{level}>{self.parts(parts, level + 1)}</div>'

    def _chart(self, chart: Chart) -> str:
        name = self.name(chart.id)
        caption, summary = self.name(f"{name}-title"), self.name(f"{name}-summary")
        self.charts[name] = chart.spec
        return (
            f'<figure class="card"><figcaption><strong id="{caption}">{text(chart.title)}</strong>'
            f'<span id="{summary}">{text(chart.summary)}</span></figcaption>'
            f'<div class="chart" id="{name}" role="img" aria-labelledby="{caption}" aria-describedby="{summary}"></div>'
            f'<details class="data" open><summary>The numbers, as a table</summary>{table(chart.table)}</details></figure>'
        )

    def _remark(self, remark: Remark, level: int) -> str:
        severity = known(remark.severity)
        heading = self.name(f"finding-{remark.code}")
        gain = f'<p class="gain"><strong>Expected:</strong> {text(remark.gain)}</p>' if remark.gain else ""
        return (
            f'<article class="card remark {severity}" aria-labelledby="{heading}">'
            f'<p class="label">{shape(severity)}<span>{SEVERITIES[severity]}</span><code>{escape(remark.code)}</code></p>'
            f'<h{level} id="{heading}">{text(remark.title)}</h{level}>'
            f"{_lines(remark.evidence)}{_lines(remark.advice)}{gain}{code(remark.edit) if remark.edit else ''}</article>"
        )


def code(plain: str, language: str = "") -> str:
    """With a button to copy it, which a script shows."""
    kind = f' data-language="{escape(language)}"' if language else ""
    return (
        f'<div class="code"{kind}><pre tabindex="0"><code>{escape(plain)}</code></pre>'
        '<button type="button" class="copy" hidden>Copy</button></div>'
    )


def table(table: Table) -> str:
    """In a box of its own, which scrolls sideways where it is too wide."""
    right = [' class="number"' if at in table.numeric else "" for at in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{side}>{text(each)}</th>' for side, each in zip(right, table.columns, strict=False)
    )
    rows = "".join(f"<tr>{_cells(row, right)}</tr>" for row in table.rows[:MOST_ROWS])
    more = len(table.rows) - MOST_ROWS
    rest = (
        f'<p class="note">{more:,} more rows are not shown here; they are in the raw data.</p>'
        if more > 0
        else ""
    )
    return (
        f'<div class="scroll"><table><caption><span>{text(table.caption)}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{rest}"
    )


def _cells(row: tuple[str, ...], right: list[str]) -> str:
    return "".join(
        f"<td{side or (_LONG if len(cell) > _LONG_LENGTH else '')}>{text(cell)}</td>"
        for side, cell in zip(right, row, strict=False)
    )


def _lines(plain: str) -> str:
    return "".join(f"<p>{text(line)}</p>" for line in plain.splitlines() if line.strip())
