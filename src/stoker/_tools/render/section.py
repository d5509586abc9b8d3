"""Defines the parts of a report, whatever it is written as: sections of prose, tables, charts, findings.

Pure data. ``sections`` make it from records; ``html``, ``markdown`` and ``text`` write it. Texts are plain, but for `code`
between backticks; escaping is the writer's. A chart always carries the table of what it draws: that is what a screen
reader, a terminal and a pull request show.

When a part is made, its texts lose secrets, and what would steer a terminal or turn the reading direction. So no form has
them, and no writer has to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker._host.secrets import masked_values


@dataclass(frozen=True, slots=True)
class _Shown:
    """Cleans the values of its fields when it is made; parts inside have done so."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, str | tuple | dict):
                object.__setattr__(self, name, masked_values(value))


@dataclass(frozen=True, slots=True)
class Prose(_Shown):
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Code(_Shown):
    """Something to copy: an edit, a command."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Table(_Shown):
    """Cells are ready to be read. ``numeric`` columns are set to the right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Chart(_Shown):
    """``spec`` is Vega-Lite with its data inside, without width, fonts and colours: those belong to the page's theme.

    ``summary`` says in a sentence what is to be seen. Series take the theme's category range, in the order of ``scale.domain``;
    what has a meaning takes its colour by name, ``theme.colour("torch")`` (``theme.MEANINGS``), in ``scale.range`` or in a mark.
    A ``height`` may be given, and is by rows where it is not. One view, layers, ``row`` facets and ``vconcat`` are made as wide as
    the page; legends stand above.
    """

    id: str
    title: str
    summary: str
    spec: dict[str, Any]
    table: Table


@dataclass(frozen=True, slots=True)
class Remark(_Shown):
    """A finding: what is wrong, the numbers that show it, and what to do. ``severity``: none, low, moderate, high."""

    code: str
    severity: str
    title: str
    evidence: str
    advice: str
    edit: str | None = None
    gain: str | None = None


@dataclass(frozen=True, slots=True)
class SideBySide(_Shown):
    """The same of several records, next to each other where there is room. Each has a label."""

    columns: tuple[tuple[str, tuple[Part, ...]], ...]


Part = Prose | Code | Table | Chart | Remark | SideBySide


def side_by_side(columns: Iterable[tuple[str, Sequence[Part]]]) -> tuple[Part, ...]:
    """Columns that have parts, next to each other; the parts of a single one, without its label."""
    found = tuple((label, tuple(parts)) for label, parts in columns if parts)
    return (SideBySide(found),) if len(found) > 1 else found[0][1] if found else ()


@dataclass(frozen=True, slots=True)
class Section(_Shown):
    """One heading and what is below it. ``id`` is its anchor, and unique in a report."""

    id: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Report(_Shown):
    """A whole one: ``headline`` is the verdict in a sentence, ``severity`` how bad it is, as a remark's, or "" for a demo."""

    title: str
    headline: str
    severity: str
    sections: tuple[Section, ...]
    raw: dict[str, Any] = field(default_factory=dict)
    """By name: what it was made of, as plain JSON, to be taken out again."""
    verdicts: dict[str, Any] = field(default_factory=dict)
    """By run: the verdict, as ``stoker report --json`` has it. For the JSON form."""
