"""A report as one HTML file that needs nothing else: opens offline, light and dark, from phone to desktop, on paper."""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from typing import Any

from stoker.report.page import library
from stoker.report.page.section import Beside, Chart, Code, Part, Prose, Remark, Report, Section, Table


def render(report: Report) -> str:
    """The whole file. Raises ImportError when the chart library is not there."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(report.title)}</title>",
            f"<style>{_asset('style.css')}</style></head><body>",
            f'<header><h1>{escape(report.title)}</h1><p class="headline">{_text(report.headline)}</p></header><main>',
            *(_section(each) for each in report.sections),
            "</main>",
            f'<script type="application/json" id="charts">{_json(_charts(report))}</script>',
            f'<script type="module">{_script(library.script())}\n{_asset("page.js")}</script>',
            "</body></html>",
        )
    )


def _section(section: Section) -> str:
    return f'<section id="{escape(section.id)}"><h2>{escape(section.title)}</h2>{"".join(map(_part, section.parts))}</section>'


def _part(part: Part) -> str:
    match part:
        case Prose():
            return f"<p>{_text(part.text)}</p>"
        case Code():
            return f"<pre><code>{escape(part.text)}</code></pre>"
        case Table():
            return _table(part)
        case Chart():
            return (
                f'<figure><figcaption>{escape(part.title)}</figcaption><div class="chart" id="{escape(part.id)}" role="img" '
                f'aria-label="{escape(part.summary)}"></div>'
                f"<details><summary>As a table</summary>{_table(part.table)}</details></figure>"
            )
        case Remark():
            return (
                f'<article class="{escape(part.severity)}"><h3>{escape(part.code)} {escape(part.title)}</h3>'
                f"<p>{_text(part.evidence)}</p><p>{_text(part.advice)}</p></article>"
            )
        case Beside():
            return "".join(
                f"<div><h3>{escape(label)}</h3>{''.join(map(_part, parts))}</div>"
                for label, parts in part.columns
            )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in table.columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<table><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _charts(report: Report) -> dict[str, Any]:
    def of(parts: tuple[Part, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in parts:
            if isinstance(part, Chart):
                found[part.id] = part.spec
            elif isinstance(part, Beside):
                for _, inner in part.columns:
                    found |= of(inner)
        return found

    return {name: spec for section in report.sections for name, spec in of(section.parts).items()}


def _text(text: str) -> str:
    """Escaped, with `code` set as such."""
    pieces = escape(text).split("`")
    return "".join(
        f"<code>{each}</code>" if number % 2 and number < len(pieces) - 1 else each
        for number, each in enumerate(pieces)
    )


def _json(value: Any) -> str:
    """JSON that cannot end the script it stands in."""
    return json.dumps(value, separators=(",", ":"), default=repr).replace("<", "\\u003c")


def _script(code: str) -> str:
    return code.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return resources.files("stoker.report.page").joinpath(name).read_text(encoding="utf-8")
