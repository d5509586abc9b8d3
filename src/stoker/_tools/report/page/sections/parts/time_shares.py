"""Shows how the time of a run was divided, from its beginning to its end. A part of the breakdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker._record.schema import LoaderRecord, Period
from stoker._tools.render.section import Chart, Table
from stoker._tools.report.page.terms import TRAINING, order, percent, title, took
from stoker._tools.report.page.vega import coloured, measured, tips
from stoker._tools.report.verdict.table import plain

_MOST_STRETCHES = 120
_LEAST_STRETCHES = 3
_LEAST_REST = 0.01
"""Of a wait: less that was not divided is not worth a colour."""


def time_shares(loader: LoaderRecord, number: int) -> Chart | None:
    """Return the chart of one loader; None for a run too short to have one. ``number`` tells runs apart."""
    stretches = _stretches(loader)
    if len(stretches) < _LEAST_STRETCHES:
        return None
    values: list[dict[str, Any]] = []
    for each in stretches:
        values += _stacked(each)
    spec = {
        "data": {"values": values},
        "height": 180,
        "mark": "rect",
        "encoding": {
            "x": measured("from", "seconds since the run began", scale={"zero": False, "nice": False}),
            "x2": {"field": "to"},
            "y": measured("low", "share of the time", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "y2": {"field": "high"},
            "color": coloured("part", values),
            "tooltip": tips(
                ("part", "part"), ("share", "of the time", ".1%"), ("from", "from (s)", ".2f"), ("to", "to (s)", ".2f"),
                ("steps", "batches", ","),
            ),
        },
    }  # fmt: skip
    columns = ("from", "to", "batches", "training", "waiting", "waiting, share", "mostly for")
    table = Table(
        f"The course of {title(loader)}", columns, tuple(map(_row, stretches)), numeric=frozenset(range(6))
    )
    return Chart(
        f"breakdown-course-{number}", "The course of the run", _summary(loader, stretches), spec, table
    )


def _stacked(period: Period) -> list[dict[str, Any]]:
    """A rectangle for each part of a stretch."""
    sums = _sums(period)
    whole_ns = sum(sums.values())
    found = []
    low = 0.0
    for name, ns in sums.items():
        high = low + ns / whole_ns
        found.append(
            {
                "from": round(period.began_ns / 1e9, 3),
                "to": round(period.ended_ns / 1e9, 3),
                "part": name,
                "low": round(low, 4),
                "high": round(high, 4),
                "share": round(ns / whole_ns, 4),
                "steps": period.steps,
            }
        )
        low = high
    return found


def _row(period: Period) -> tuple[str, ...]:
    sums = _sums(period)
    waiting = {name: ns for name, ns in sums.items() if name != TRAINING}
    return (
        f"{period.began_ns / 1e9:.2f} s",
        f"{period.ended_ns / 1e9:.2f} s",
        f"{period.steps:,}",
        took(period.step_ns),
        took(period.wait_ns),
        percent(_waited(period)),
        max(waiting, key=waiting.__getitem__) if waiting else "nothing",
    )


def _summary(loader: LoaderRecord, stretches: Sequence[Period]) -> str:
    # A batch by itself at an epoch's end is all waiting, and says nothing.
    usual_ns = sum(each.ended_ns - each.began_ns for each in stretches) / len(stretches)
    long = [each for each in stretches if 2 * (each.ended_ns - each.began_ns) >= usual_ns]
    worst = max(long, key=_waited)
    return (
        f"When {title(loader)} was waited for: most between {worst.began_ns / 1e9:.2f} s and {worst.ended_ns / 1e9:.2f} s, "
        f"{percent(_waited(worst))} of that time. Gaps are between epochs."
    )


def _waited(period: Period) -> float:
    return period.wait_ns / max(1, period.wait_ns + period.step_ns)


def _sums(period: Period) -> dict[str, int]:
    """Nanoseconds by part, as blame divided each wait when it was over; what it did not divide is unknown."""
    sums = {TRAINING: max(0, period.step_ns)}
    for cause, ns in period.causes.items():
        if type(ns) is int and ns > 0:
            sums[plain(str(cause))] = sums.get(plain(str(cause)), 0) + ns
    rest_ns = period.wait_ns - (sum(sums.values()) - sums[TRAINING])
    if rest_ns > _LEAST_REST * period.wait_ns:
        sums["unknown"] = sums.get("unknown", 0) + rest_ns
    return {name: sums[name] for name in sorted(sums, key=order) if sums[name] > 0}


def _stretches(loader: LoaderRecord) -> list[Period]:
    """Its periods in order, neighbours put together until there are few enough to draw."""
    found = sorted(
        (each for each in loader.periods if each.ended_ns > each.began_ns >= 0 and min(each.wait_ns, each.step_ns) >= 0),
        key=lambda each: each.began_ns,
    )  # fmt: skip
    found = [each for each in found if each.wait_ns + each.step_ns > 0]
    while len(found) > _MOST_STRETCHES:
        found = [_together(found[at : at + 2]) for at in range(0, len(found), 2)]
    return found


def _together(periods: Sequence[Period]) -> Period:
    causes: dict[str, int] = {}
    for each in periods:
        for cause, ns in each.causes.items():
            if type(ns) is int:
                causes[cause] = causes.get(cause, 0) + ns
    return Period(
        periods[0].began_ns,
        max(each.ended_ns for each in periods),
        sum(each.steps for each in periods),
        sum(each.wait_ns for each in periods),
        sum(each.step_ns for each in periods),
        causes,
    )
