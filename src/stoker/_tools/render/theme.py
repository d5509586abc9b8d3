"""The look of a report: every colour for both themes, and what charts are drawn with.

A chart's spec names a colour by ``colour("torch")``, which the page reads as a variable of its style sheet: so a chart is
drawn once and follows the theme, and the paper, by itself. Where there is no style sheet (a picture in a README),
``settled`` puts the values in.
"""

from __future__ import annotations

import re
from typing import Any

COLOURS: dict[str, tuple[str, str]] = {
    "ground": ("#f4f5f7", "#12161b"),
    "card": ("#ffffff", "#1b2128"),
    "edge": ("#d5dae1", "#343d48"),
    "ink": ("#1a2129", "#e6eaee"),
    "muted": ("#525c68", "#a5afba"),
    "link": ("#005ea8", "#7cc0ff"),
    "focus": ("#0b57d0", "#a8c7fa"),
    "code": ("#eef1f4", "#262e37"),
    "grid": ("#e3e7ec", "#2c343d"),
    "none": ("#0b6b47", "#6fd6a8"),
    "none-ground": ("#e4f5ec", "#12301f"),
    "low": ("#1f5f9e", "#8ec5ff"),
    "low-ground": ("#e5f0fb", "#132a40"),
    "moderate": ("#845100", "#f5c265"),
    "moderate-ground": ("#fdf1da", "#392a0c"),
    "high": ("#a82020", "#ff9d94"),
    "high-ground": ("#fdeaea", "#421a1a"),
    "series-1": ("#0072b2", "#56b4e9"),
    "series-2": ("#c9540a", "#f2955c"),
    "series-3": ("#00835f", "#35c79c"),
    "series-4": ("#b0508a", "#e59ac4"),
    "series-5": ("#8a6d00", "#e3c14b"),
    "series-6": ("#5b4bb5", "#aaa0f0"),
    "series-7": ("#5b6570", "#a3adb8"),
    "series-8": ("#7a2048", "#d9708f"),
    "train": ("#00835f", "#35c79c"),
    "wait": ("#c9540a", "#f2955c"),
    "torch": ("#c9540a", "#f2955c"),
    "stoker": ("#0072b2", "#56b4e9"),
    "limit": ("#a82020", "#ff9d94"),
    "chosen": ("#1a2129", "#e6eaee"),
    "quiet": ("#79838f", "#7d8894"),
}
"""By name: on light and on dark ground. Series are told apart by those who cannot tell red from green, and by lightness."""

ON_ANY_GROUND = {"none": "#2e8b57", "low": "#4a7fb5", "moderate": "#c77700", "high": "#d64545"}
"""The severities in a notebook, whose ground is not known: they stand out on white and on black."""

SERIES = tuple(name for name in COLOURS if name.startswith("series-"))
"""The category range, in its order."""

MEANINGS = ("train", "wait", "torch", "stoker", "limit", "chosen", "quiet", "none", "low", "moderate", "high")
"""What a spec may also ask for by name: time in training and in waiting, the two loaders, a ceiling, the point that was chosen,
what is not the matter, and the severities."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")


def colour(name: str) -> str:
    """For a spec: one of MEANINGS or SERIES, as the page's style sheet has it in either theme."""
    if name not in COLOURS:
        raise KeyError(f"the theme has no colour {name!r}")
    return f"var(--{name})"


def variables() -> str:
    """For the style sheet."""
    return ":root{" + "".join(f"--{name}:light-dark({a},{b});" for name, (a, b) in COLOURS.items()) + "}"


def config() -> dict[str, Any]:
    """Vega-Lite's ``config``: fonts, axes, legends, colours. Size and what depends on it are set where a chart is drawn."""
    ink, muted, grid, edge = (colour(each) for each in ("ink", "muted", "grid", "edge"))
    return {
        "aria": False,  # the page names each chart as one image and gives its table beside it
        "background": None,
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None, "cursor": "default"},
        "title": {"color": ink, "fontSize": 13, "anchor": "start", "subtitleColor": muted},
        "axis": {
            "labelColor": muted, "titleColor": muted, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
            "titlePadding": 8, "labelPadding": 6, "domainColor": edge, "tickColor": edge, "gridColor": grid, "ticks": False,
        },
        "axisQuantitative": {"tickCount": 6, "domain": False},
        "axisBand": {"grid": False},
        "legend": {
            "orient": "top", "labelColor": ink, "titleColor": muted, "labelFontSize": 12, "titleFontSize": 12,
            "titleFontWeight": "normal", "symbolSize": 120, "symbolStrokeWidth": 2, "labelLimit": 240, "offset": 8,
        },
        "header": {"labelColor": ink, "titleColor": muted, "labelFontSize": 12, "titleFontSize": 12},
        "range": {
            "category": [colour(each) for each in SERIES],
            "ordinal": {"scheme": "viridis"}, "ramp": {"scheme": "viridis"}, "heatmap": {"scheme": "viridis"},
        },
        "mark": {"color": colour("series-1")},
        "bar": {"cornerRadius": 2},
        "line": {"strokeWidth": 2.5, "strokeCap": "round", "strokeJoin": "round"},
        "point": {"size": 60, "filled": True, "opacity": 1},
        "area": {"opacity": 0.35, "line": True},
        "rule": {"color": muted, "strokeWidth": 1.5},
        "text": {"color": ink, "fontSize": 12},
        "tick": {"thickness": 2},
    }  # fmt: skip


def settled(value: Any, *, dark: bool) -> Any:
    """A spec or a config with its colours as they are in one theme, for those who draw without the page."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: COLOURS[found[1]][dark], value)
    if isinstance(value, dict):
        return {key: settled(each, dark=dark) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [settled(each, dark=dark) for each in value]
    return value
