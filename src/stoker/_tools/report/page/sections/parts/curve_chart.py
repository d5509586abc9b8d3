"""The chart of scaling curves: predicted lines, measured points, the ceiling, the knee, and what was chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker._tools.render.theme import colour
from stoker._tools.report.page.sections.scaling import Curve, Measured, Predicted
from stoker._tools.report.page.terms import cut, number, of_runs, scale
from stoker._tools.report.page.vega import Spec, measured, named, tips

_KINDS = {"predicted": "circle", "measured": "square", "as it was": "diamond", "recommended": "triangle-up"}
_INKS = {"predicted": "series-1", "measured": "series-1", "as it was": "chosen", "recommended": "wait"}
_SIZES = {"predicted": 28, "measured": 70, "as it was": 190, "recommended": 170}
_LINES: dict[str, list[int]] = {"ceiling: the training step": [7, 4], "limit: CPUs": [2, 3], "knee": [1, 0]}
_BOUNDS = {"step": "ceiling: the training step", "cpus": "limit: CPUs"}
_INK = {"symbolFillColor": colour("ink"), "symbolStrokeColor": colour("ink")}
_COARSE = 20
"""Samples a second from which on digits behind the point say nothing."""
_LINE_HEIGHT = 0.07
"""Of the chart's height: what a line of text needs."""
_NEAR = 1.6
"""A ceiling that is no further than this above the curve is drawn; others are told in the table."""


def spec(curves: Sequence[Curve]) -> dict[str, Any]:
    """All on one chart, a colour for each where there are several."""
    labels = [cut(each.label, 24) for each in curves]
    names = of_runs(labels, [each.engine for each in curves])
    points = [point for label, each in zip(labels, curves, strict=True) for point in _points(label, each)]
    top = max(point["high"] for point in points)
    rules = [rule for label, each in zip(labels, curves, strict=True) for rule in _rules(label, each, top)]
    top = 1.08 * max([top, *(rule["per_s"] for rule in rules if rule["per_s"] is not None)])
    most = max(point["workers"] for point in points)
    digits = ",.0f" if top >= _COARSE else ",.2~f"
    # Workers double from mark to mark, and none is a place too.
    doubling = {"type": "symlog", "constant": 1, "domain": [0, most]}
    x = measured(
        "workers", "workers", scale=doubling, axis={"values": _ticks(most), "labelOverlap": True, "format": "d"},
    )  # fmt: skip
    y = measured(
        "per_s", "samples a second", scale={"domain": [0, top], "nice": False}, axis={"format": digits}
    )
    alone = len(curves) == 1
    if alone:
        colours = named("kind", scale=scale([each["kind"] for each in points], _INKS))
    else:
        colours = named("run", scale=scale(labels, names), sort=labels)
    base = {"x": x, "y": y, "color": colours}
    return {"height": 300, "layer": [*_ruled(rules, base, top, alone), *_curves(points, base, alone)]}


def _points(label: str, curve: Curve) -> list[dict[str, Any]]:
    """One for each mark; what matters most is drawn last."""
    found = [_point(label, "predicted", each, "replayed") for each in curve.predicted]
    found += [
        _point(label, "recommended", each, "replayed")
        for each in curve.predicted
        if each.workers == curve.wanted and not curve.tuned
    ]
    for each in sorted(curve.measured, key=lambda each: list(_KINDS).index(each.kind)):
        found.append(_point(label, each.kind, each, each.setting or "the run itself"))
    return found


def _point(label: str, kind: str, at: Predicted | Measured, how: str) -> dict[str, Any]:
    low, high = (at.low_per_s, at.high_per_s) if isinstance(at, Measured) else (None, None)
    return {
        "run": label,
        "kind": kind,
        "workers": at.workers,
        "per_s": round(at.per_s, 2),
        "low": round(low if low is not None else at.per_s, 2),
        "high": round(high if high is not None else at.per_s, 2),
        "stall": round(at.stall, 4),
        "size": _SIZES[kind],
        "how": how,
    }


def _rules(label: str, curve: Curve, top: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for bound in curve.bounds:
        line = _BOUNDS.get(bound.name)
        if line is not None and bound.per_s <= _NEAR * top:
            told = {"text": f"{line}, {number(bound.per_s)}/s", "sentence": bound.sentence}
            found.append(
                {"run": label, "line": line, "per_s": round(bound.per_s, 2), "workers": None, **told}
            )
    if curve.knee is not None:
        told = {"text": f"knee: {curve.knee}", "sentence": curve.reason}
        found.append({"run": label, "line": "knee", "per_s": None, "workers": curve.knee, **told})
    return found


def _ruled(rules: list[dict[str, Any]], base: Spec, top: float, alone: bool) -> list[Spec]:
    """Lines across the chart; what they are is written on them when there is one curve, and else told at the pointer."""
    present = [name for name in _LINES if any(each["line"] == name for each in rules)]
    dashes = {"domain": present, "range": [_LINES[name] for name in present]}
    told = {
        "strokeDash": named("line", scale=dashes, legend=None),
        "tooltip": tips(("text", "line"), ("sentence", "because"), ("run", "run")),
    }
    layers: list[Spec] = []
    for channel, field, ink, where in (
        ("y", "per_s", "limit", {"x": {"value": 0}, "y": base["y"]}),
        ("x", "workers", "muted", {"x": base["x"], "y": {"datum": 0}}),
    ):
        values = [each for each in rules if each[field] is not None]
        if not values:
            continue
        paint = {"value": colour(ink)} if alone else base["color"]
        encoding = {channel: base[channel], "color": paint, **told}
        layers.append({"data": {"values": values}, "mark": {"type": "rule"}, "encoding": encoding})
        if alone:
            values = [each for each in values if not _covered(each, values, top)]
            mark = {
                "type": "text",
                "align": "left",
                "baseline": "bottom",
                "dx": 6,
                "dy": -4,
                "color": colour(ink),
            }
            encoding = {**where, "text": {"field": "text"}}
            layers.append({"data": {"values": values}, "mark": mark, "encoding": encoding})
    return layers


def _covered(rule: dict[str, Any], rules: list[dict[str, Any]], top: float) -> bool:
    """Whether its words would stand on those of a line just below it."""
    if rule["per_s"] is None:
        return False
    return any(0 < rule["per_s"] - each["per_s"] < _LINE_HEIGHT * top for each in rules)


def _curves(points: list[dict[str, Any]], base: Spec, alone: bool) -> list[Spec]:
    """The line of predictions, how sure measured points are, and all points."""
    predicted = [each for each in points if each["kind"] == "predicted"]
    spread = [each for each in points if each["high"] > each["low"]]
    present = [name for name in _KINDS if any(each["kind"] == name for each in points)]
    shapes = {"domain": present, "range": [_KINDS[name] for name in present]}
    layers: list[Spec] = [
        {"data": {"values": predicted}, "mark": {"type": "line", "opacity": 0.75}, "encoding": base},
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "stroke": colour("card"), "strokeWidth": 1},
            "encoding": {
                **base,
                "shape": named("kind", scale=shapes, legend={} if alone else _INK),
                "size": {"field": "size", "type": "quantitative", "scale": None, "legend": None},
                "tooltip": tips(
                    ("run", "run"), ("kind", "point"), ("workers", "workers", "d"), ("per_s", "samples/s", ",.1f"),
                    ("stall", "waiting", ".0%"), ("how", "how"),
                ),
            },
        },
    ]  # fmt: skip
    if spread:
        encoding = {**base, "y": base["y"] | {"field": "low"}, "y2": {"field": "high"}}
        layers.insert(
            1, {"data": {"values": spread}, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": encoding}
        )
    return layers


def _ticks(most: int) -> list[int]:
    found = [0, 1]
    while 2 * found[-1] <= most:
        found.append(2 * found[-1])
    return found
