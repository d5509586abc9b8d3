"""The chart of runs side by side: a group of bars for each figure, each bar against the longest of its group. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker._tools.report.page.sections.parts.comparison import Figure, Side
from stoker._tools.report.page.terms import cut, of_runs, scale
from stoker._tools.report.page.vega import measured, named, tips

_ROOM = 1.42
"""Beyond the longest bar there is room for its words."""


def spec(sides: Sequence[Side], figures: Sequence[Figure]) -> dict[str, Any]:
    """Figures have units of their own: lengths are compared within a group, and every bar says what it is."""
    runs = [cut(each.label, 24) for each in sides]
    colours = of_runs(runs, [each.loader.engine for each in sides])
    values = [value for each in figures for value in _bars(each, runs)]
    y = named("figure", sort=[each.short for each in figures])
    offset = {"field": "run", "type": "nominal", "sort": runs}
    x = measured("length", None, scale={"domain": [0, _ROOM], "nice": False}, axis=None)
    base = {"y": y, "yOffset": offset, "x": x}
    tip = tips(("name", "figure"), ("run", "run"), ("told", "value"), ("against", "against the first"))
    bars = {
        "mark": "bar",
        "encoding": base | {"color": named("run", scale=scale(runs, colours)), "tooltip": tip},
    }
    words = {
        "mark": {"type": "text", "align": "left", "dx": 5},
        "encoding": base | {"text": {"field": "told"}},
    }
    return {"data": {"values": values}, "height": {"step": 20}, "layer": [bars, words]}


def _bars(figure: Figure, runs: Sequence[str]) -> list[dict[str, Any]]:
    known = [each for each in figure.values if each is not None]
    longest = max(known, default=0.0)
    found = []
    for place, (run, value) in enumerate(zip(runs, figure.values, strict=True)):
        ratio = figure.ratio(place)
        found.append(
            {
                "figure": figure.short,
                "name": figure.name,
                "run": run,
                "length": round((value or 0.0) / longest, 4) if longest > 0 else 0.0,
                "told": figure.format(value),
                "against": "" if ratio is None else f"{ratio:.2f}×",
            }
        )
    return found
