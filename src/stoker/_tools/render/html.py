"""Renders a report as one HTML file that needs nothing else: opens offline, light and dark, from phone to desktop, on paper.

Nothing in it is loaded, and nothing can be: the page's policy forbids every request, and lets run only the two scripts
whose digests it names. Vega's expressions are interpreted (``ast``), so the policy needs no ``unsafe-eval``; styles are
inline, because Vega sets some itself. Without scripts all but the pictures is there, and their tables are open.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib import resources
from typing import Any

import stoker
from stoker._record.finding import size
from stoker._tools.render import chart_library, theme
from stoker._tools.render.embedded_data import EmbeddedData, embedded
from stoker._tools.render.markup import Markup, known, shape, text
from stoker._tools.render.section import Report

MOST_BYTES = 3_000_000
"""A whole page; raw data is thinned to keep below."""

_SPARE_BYTES = 20_000
_VERDICTS = {
    "high": "Costs much",
    "moderate": "Worth changing",
    "low": "Costs a little",
    "none": "Nothing to change",
}
"""In words, for a whole report. Any other severity has none: a demo is neither good nor bad."""


_OURS = ("top", "main", "raw", "raw-title", "verdict-banner", "theme", "charts", "said")
"""Ids of the page itself: no section may have them."""


def render(report: Report) -> str:
    """The whole file. Raises ImportError when the chart library is not there."""
    markup = Markup()
    for name in _OURS:
        markup.name(name)
    sections = [(each.title, *markup.section(each)) for each in report.sections]
    front, charts = _asset("page.js"), f"{_script(chart_library.script())}\n{_asset('charts.js')}"
    drawn = _json({"config": theme.config(), "specs": markup.charts})
    links = [(name, title) for title, name, _ in sections] + ([("raw", "Raw data")] if report.raw else [])
    body = "".join(written for _, _, written in sections)
    rest = sum(len(each.encode("utf-8", "replace")) for each in (front, charts, drawn, body)) + _SPARE_BYTES
    raw = embedded(report.raw, max(0, MOST_BYTES - rest))
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en" id="top"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(front, charts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(report.title)}: {escape(report.headline)}</title>",
            f"<style>{theme.variables()}\n{_asset('style.css')}</style></head><body>",
            '<a class="skip" href="#main">Skip to the report</a>',
            _header(report),
            f'<div class="frame">{_contents(links)}<main id="main" tabindex="-1">',
            body,
            _raw(raw, markup),
            "</main></div>",
            f"<footer><p>Made by stoker {escape(stoker.__version__)}. All it needs is in this file.</p></footer>",
            '<p id="said" class="unseen" role="status"></p>',
            f"<script>{front}</script>",
            f'<script type="application/json" id="charts">{drawn}</script>',
            f'<script type="module">{charts}</script>',
            "</body></html>\n",
        )
    )


def _header(report: Report) -> str:
    severity = known(report.severity) if report.severity in _VERDICTS else "plain"
    word = _VERDICTS.get(report.severity)
    icon = shape("good" if severity == "none" else severity)
    label = f'<p class="label">{icon}<span>{word}</span></p>' if word else ""
    banner = (
        f'<div id="verdict-banner" class="banner {severity}" role="region" aria-label="In short">{label}'
        f'<p class="headline">{text(report.headline)}</p></div>'
        if report.headline
        else ""
    )
    return (
        f'<header><div class="bar"><h1>{text(report.title)}</h1>'
        '<button type="button" id="theme" aria-pressed="false" hidden>Dark theme</button></div>'
        f'{banner}<p class="unscripted">Scripts are off: charts are not drawn, and their tables are open instead.</p></header>'
    )


def _contents(links: list[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="#{name}">{text(title)}</a></li>' for name, title in links)
    return f'<nav aria-label="Contents"><details open><summary>Contents</summary><ol>{items}</ol></details></nav>'


def _raw(found: list[EmbeddedData], markup: Markup) -> str:
    if not found:
        return ""
    items = "".join(_enclosure(markup.name("raw-data"), each) for each in found)
    return (
        '<section id="raw" aria-labelledby="raw-title"><h2 id="raw-title">Raw data</h2>'
        "<p>What this report was made of is inside this file, as JSON.</p>"
        f'<ul class="raw">{items}</ul><p class="unscripted">Taking it out needs scripts.</p></section>'
    )


def _enclosure(at: str, found: EmbeddedData) -> str:
    if found.packed is None:
        return f"<li>{escape(found.name)}: too large for this page ({size(found.size_bytes)} of JSON), so it is not in it.</li>"
    thinned = (
        f" Thinned to fit: {found.left_out:,} steps from the middle are left out." if found.left_out else ""
    )
    name = found.name if found.name.endswith(".json") else f"{found.name}.json"
    return (
        f'<li><button type="button" class="save" data-from="{at}" data-name="{escape(name)}" hidden>'
        f"Save the raw JSON</button> <span>{escape(found.name)}, {size(found.size_bytes)}.{thinned}</span>"
        f'<script type="application/octet-stream" id="{at}">{found.packed}</script></li>'
    )


def _policy(*scripts: str) -> str:
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; connect-src 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that cannot end the script it stands in."""
    return json.dumps(value, separators=(",", ":"), default=repr).replace("<", "\\u003c")


def _script(code: str) -> str:
    """Code that cannot end its element; in strings and patterns, where alone these stand, it means the same."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _asset(name: str) -> str:
    return resources.files("stoker._tools.render").joinpath(name).read_text(encoding="utf-8")
