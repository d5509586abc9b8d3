"""Renders a report as Markdown for a pull request on GitHub: the answer open, tables folded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from stoker._host.secrets import cleaned
from stoker._tools.render.section import Chart, Code, Part, Prose, Remark, Report, SideBySide, Table

_MARKS = {"high": "🔴", "moderate": "🟠", "low": "🟡", "none": "🟢"}
_SPECIAL = re.compile(r"([\\*_\[\]#|~$!])")
_LITERAL = re.compile(r"([\\`*_{}\[\]<>#|~])")
_MENTION = re.compile(r"@(?=\w)")
_OPEN = ("verdict", "compare")
"""Sections of which tables are not folded."""
_MOST_ROWS = 30
_MOST_BYTES = 60_000
"""GitHub takes 65536 characters in a comment."""


def render(report: Report) -> str:
    """The whole of it, within what a comment may have: long tables get shorter. Without a newline at its end."""
    for rows in (_MOST_ROWS, 8, 2):
        text = _rendered(report, rows)
        if len(text.encode("utf-8", "replace")) <= _MOST_BYTES:
            break
    return text


def escaped(text: str) -> str:
    """Text that means itself, on one line: what Markdown and HTML would read otherwise is escaped."""
    return _LITERAL.sub(r"\\\1", cleaned(_flat(text))).replace("&", "&amp;")


def code(text: str) -> str:
    """As code, whatever backticks are in it."""
    flat = cleaned(" ".join(text.split("\n")))
    fence = _fence(flat, 1)
    return f"{fence} {flat} {fence}" if "`" in flat else f"{fence}{flat}{fence}"


def _rendered(report: Report, rows: int) -> str:
    mark = _MARKS.get(report.severity, "")
    lines = [f"## {_text(report.title)}", "", f"{mark} **{_text(report.headline)}**".strip()]
    for section in report.sections:
        lines += ["", f"### {_text(section.title)}", ""]
        for part in section.parts:
            lines += _part(part, rows, folded=section.id not in _OPEN)
    return re.sub(r"\n{3,}", "\n\n", cleaned("\n".join(lines))).strip()


def _part(part: Part, rows: int, folded: bool) -> Iterator[str]:
    match part:
        case Prose():
            yield from (_text(part.text), "")
        case Code():
            fence = _fence(part.text)
            yield from (f"{fence}{re.sub(r'[^a-z]', '', part.language)}", part.text, fence, "")
        case Table():
            yield from _folded(part, rows) if folded else _table(part, rows)
        case Chart():
            yield from (f"**{_text(part.title)}.** {_text(part.summary)}", "")
            yield from _folded(part.table, rows)
        case Remark():
            yield from _remark(part)
        case SideBySide():
            for label, parts in part.columns:
                yield from (f"#### {_text(label)}", "")
                for each in parts:
                    yield from _part(each, rows, folded)


def _remark(part: Remark) -> Iterator[str]:
    gain = f"Gain: {part.gain}" if part.gain else ""
    yield f"- {_MARKS.get(part.severity, '')} **{_text(part.code)}** {_text(part.title)}"
    yield from (f"  {_text(each)}" for each in (part.evidence, part.advice, gain) if each)
    if part.edit:
        fence = _fence(part.edit)
        yield from ("", f"  {fence}", *(f"  {line}" for line in part.edit.splitlines()), f"  {fence}")
    yield ""


def _folded(table: Table, rows: int) -> Iterator[str]:
    yield from ("<details>", f"<summary>{escape(_flat(table.caption) or 'As a table')}</summary>", "")
    yield from _rows(table, rows)
    yield from ("</details>", "")


def _table(table: Table, rows: int) -> Iterator[str]:
    if table.caption:
        yield from (_text(table.caption), "")
    yield from _rows(table, rows)


def _rows(table: Table, rows: int) -> Iterator[str]:
    yield f"| {' | '.join(map(_text, table.columns))} |"
    yield f"|{'|'.join('---:' if place in table.numeric else '---' for place in range(len(table.columns)))}|"
    yield from (f"| {' | '.join(map(_text, row))} |" for row in table.rows[:rows])
    if len(table.rows) > rows:
        yield from ("", f"… {len(table.rows) - rows} rows more")
    yield ""


def _text(text: str) -> str:
    """In one line, as it is: nothing in it is taken for Markdown, HTML or somebody's name, but `code` stays code."""
    pieces = _flat(text).split("`")
    return "".join(
        f"`{each.replace('|', chr(92) + '|')}`"
        if number % 2 and number < len(pieces) - 1 and each
        else _MENTION.sub("@\u2060", _SPECIAL.sub(r"\\\1", escape(each, quote=False)))
        for number, each in enumerate(pieces)
    )


def _fence(text: str, least: int = 3) -> str:
    longest = max((len(each) for each in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _flat(text: str) -> str:
    return " ".join(text.split())
