"""A tuning in a notebook: one self-contained fragment, readable on light and dark ground."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stoker._tools.tune.forms import screen, words
from stoker._tools.tune.result import Tuning

_PLAIN = 'style="background:transparent"'


def render(tuning: Tuning) -> str:
    """No script, no style sheet, no reference to anything outside; all text escaped."""
    gain = words.saving_text(tuning)
    parts = [
        '<div style="font-family:sans-serif;max-width:60em;line-height:1.4">',
        '<div style="border-left:4px solid currentColor;padding:2px 0 2px 10px">',
        f"<b>{escape(tuning.verdict)}</b>{f' {escape(gain)}.' if gain else ''}",
        f"<br><small>{escape(tuning.target)}</small></div>",
    ]
    if tuning.failure and tuning.failure not in tuning.verdict:
        parts.append(f"<p>{escape(tuning.failure)}</p>")
    if edits := screen.typed(tuning):
        parts.append(f"<pre>{escape(chr(10).join(edits))}</pre>")
    parts += [
        _listed(tuning.why),
        _listed(words.cache_lines(tuning)),
        _points(tuning),
        _listed(tuning.warnings),
        "</div>",
    ]
    return "".join(parts)


def _listed(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(each)}</li>" for each in texts)
    return f"<ul>{items}</ul>" if items else ""


def _points(tuning: Tuning) -> str:
    """The settings that were run, folded."""
    points = words.shown_points(tuning)
    if not points:
        return ""
    rows = [_row("th", words.HEADS), *(_row("td", words.row(each, tuning)) for each in points)]
    return (
        f"<details><summary><small>settings that were tried: {len(points)}</small></summary>"
        f'<table style="border:none">{"".join(rows)}</table></details>'
    )


def _row(kind: str, cells: Iterable[str]) -> str:
    """The first cell is a name, the others are numbers."""
    shown = "".join(
        f'<{kind} style="text-align:{"right" if number else "left"}">{escape(cell)}</{kind}>'
        for number, cell in enumerate(cells)
    )
    return f"<tr {_PLAIN}>{shown}</tr>"
