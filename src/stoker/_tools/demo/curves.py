"""Draws what the scaling act measured: a curve for each flavour, and the cost of too many workers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from stoker._record.finding import capitalised, counted
from stoker._tools.demo.gains import (
    DISTURBED,
    LOADERS,
    STOKER,
    TORCH,
    bend,
    compared,
    gain,
    measured,
    quiet,
    used,
)
from stoker._tools.render.section import Chart, Part, Prose, Section, SideBySide, Table
from stoker._tools.report.page import vega

IDEAL = "ideal"
_COMPUTE = ("jpeg", "python")


def sections(result: dict[str, Any]) -> list[Section]:
    """The curves, the first batches, and what too many workers cost."""
    flavours = measured(result)
    parts: list[Part] = [
        Prose(
            f"Rows a second, as many times those of torch's loader without workers. Batches of {result['batch']}, persistent"
            " workers, torch's own prefetching, a consumer that drops what it gets. Points are medians of"
            f" {_rounds(flavours)}; bars reach from the lowest to the highest.{_set_aside(flavours)}"
        ),
        Prose(bend(result, titles=True)),
        *(
            Prose(f"{capitalised(each['title'])} was left out. {each['left_out']}")
            for each in result["flavours"]
            if each["left_out"]
        ),
    ]
    if not flavours:
        return [
            Section("scaling", "What workers gain", (*parts, Prose("There was no time to measure anything.")))
        ]
    parts.append(
        SideBySide(tuple((capitalised(each["title"]), (_chart(each, result["cpus"]),)) for each in flavours))
    )
    found = [Section("scaling", "What workers gain", tuple(parts))]
    crowd = _crowd(flavours, result["cpus"])
    return found if crowd is None else [*found, crowd]


def _chart(flavour: dict[str, Any], cpus: int) -> Chart:
    counts = [str(each["workers"]) for each in flavour["points"]]
    values = [_value(flavour, point, kind) for point in flavour["points"] for kind in LOADERS]
    ideal = [
        {"workers": str(each["workers"]), "loader": IDEAL, "gain": max(1, each["workers"])}
        for each in flavour["points"]
    ]
    x = _workers(counts)
    series = vega.painted("loader", {TORCH: TORCH, STOKER: STOKER, IDEAL: "quiet"})
    title = "gain over no workers"
    y = vega.measured("gain", title, scale={"zero": True})
    told = vega.tips(
        ("loader", "loader"), ("workers", "workers"), ("gain", "gain", ".2f"), ("rate", "rows a second", ",.0f"),
        ("first_ms", "first batch, ms", ",.0f"),
    )  # fmt: skip
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": ideal},
            "mark": {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y, "color": series},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {"x": x, "y": vega.measured("low", title), "y2": {"field": "high"}, "color": series},
        },
        {
            "mark": {"type": "line", "point": {"size": 60}, "strokeWidth": 2.5},
            "encoding": {"x": x, "y": y, "color": series, "tooltip": told},
        },
    ]
    if str(cpus) in counts:
        layers.insert(0, {
            "data": {"values": [{"workers": str(cpus), "note": f"{cpus} CPUs"}]},
            "layer": [
                {"mark": {"type": "rule", "strokeDash": [2, 3], "opacity": 0.6}, "encoding": {"x": x}},
                {
                    "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 4, "y": 2},
                    "encoding": {"x": x, "text": {"field": "note"}},
                },
            ],
        })  # fmt: skip
    last = flavour["points"][-1]
    summary = (
        f"{capitalised(flavour['title'])}, rows of {flavour['row_ms']:.1f} ms: with {last['workers']} workers torch gains"
        f" {gain(flavour, last, TORCH):.1f}×, stoker {gain(flavour, last, STOKER):.1f}×."
    )
    spec = {"data": {"values": values}, "layer": layers}
    return Chart(
        f"scaling-{flavour['name']}", f"{flavour['row_ms']:.1f} ms a row", summary, spec, _table(flavour)
    )


def _workers(sort: list[str] | None) -> vega.Spec:
    """The axis of how many workers there are."""
    return {
        "field": "workers",
        "type": "ordinal",
        "sort": sort,
        "title": "workers",
        "axis": {"labelAngle": 0},
    }


def _value(flavour: dict[str, Any], point: dict[str, Any], kind: str) -> dict[str, Any]:
    base = median(used(flavour["points"][0], TORCH, "rates"))
    rates = used(point, kind, "rates")
    return {
        "workers": str(point["workers"]),
        "loader": kind,
        "gain": round(median(rates) / base, 3),
        "low": round(min(rates) / base, 3),
        "high": round(max(rates) / base, 3),
        "rate": round(median(rates), 1),
        "first_ms": round(median(used(point, kind, "first_ms")), 1),
    }


def _table(flavour: dict[str, Any]) -> Table:
    columns = (
        "workers",
        "torch, rows/s",
        "stoker, rows/s",
        "torch",
        "stoker",
        "first batch: torch",
        "stoker",
        "stoker to torch",
    )
    rows = []
    for point in flavour["points"]:
        seen = [_value(flavour, point, kind) for kind in LOADERS]
        rows.append((
            str(point["workers"]),
            *(f"{each['rate']:,.0f}" for each in seen),
            *(f"{each['gain']:.2f}×" for each in seen),
            *(f"{each['first_ms']:.0f} ms" for each in seen),
            compared(point),
        ))  # fmt: skip
    return Table(f"{capitalised(flavour['title'])} by workers", columns, tuple(rows), frozenset(range(7)))


def _crowd(flavours: Sequence[dict[str, Any]], cpus: int) -> Section | None:
    """What computing costs with as many workers as CPUs, and with more."""
    found = [
        (capitalised(each["title"]), (_costs(each, points),))
        for each, points in _crowded_points(flavours, cpus)
    ]
    if not found:
        return None
    text = (
        f"There are {cpus} CPUs to compute on, and workers beyond that take turns on them. What that gains is above; this is"
        " what it costs: CPU time, how often workers are taken off a CPU that another wants, and how late the first batch is."
    )
    return Section("oversubscription", "More workers than CPUs", (Prose(text), SideBySide(tuple(found))))


def _crowded_points(
    flavours: Sequence[dict[str, Any]], cpus: int
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Flavours that compute, with their points from as many workers as CPUs on, where the kernel told what they cost."""
    for flavour in flavours:
        points = [
            each
            for each in flavour["points"]
            if each["workers"] >= cpus and all(each[kind]["cpu_ms"] for kind in LOADERS)
        ]
        if flavour["name"] in _COMPUTE and points:
            yield flavour, points


def _costs(flavour: dict[str, Any], points: Sequence[dict[str, Any]]) -> Chart:
    """CPU time a row by workers, and in the table what else they cost."""
    names = ("cpu_ms", "switches", "first_ms")
    values: list[dict[str, Any]] = [
        {"workers": str(point["workers"]), "loader": kind, "gain": round(gain(flavour, point, kind), 2)}
        | {name: round(median(used(point, kind, name)), 3) for name in names}
        for point in points
        for kind in LOADERS
    ]
    spec = {
        "data": {"values": values},
        "mark": "bar",
        "encoding": {
            "x": _workers(None),
            "xOffset": {"field": "loader", "sort": list(LOADERS)},
            "y": vega.measured("cpu_ms", "ms of CPU time a row"),
            "color": vega.painted("loader", {each: each for each in LOADERS}),
            "tooltip": vega.tips(
                ("loader", "loader"), ("workers", "workers"), ("cpu_ms", "CPU a row, ms", ".2f"),
                ("switches", "taken off a CPU, per 1000 rows", ",.0f"), ("first_ms", "first batch, ms", ",.0f"),
            ),
        },
    }  # fmt: skip
    columns = ("workers", "loader", "gain", "CPU a row", "taken off a CPU, per 1000 rows", "first batch")
    rows = tuple(
        (
            each["workers"], each["loader"], f"{each['gain']:.2f}×", f"{each['cpu_ms']:.2f} ms",
            f"{each['switches']:,.0f}", f"{each['first_ms']:.0f} ms",
        )
        for each in values
    )  # fmt: skip
    first, last = (
        {kind: median(used(point, kind, "cpu_ms")) for kind in LOADERS} for point in (points[0], points[-1])
    )
    told = ", ".join(f"{kind} {first[kind]:.2f} to {last[kind]:.2f} ms" for kind in LOADERS)
    summary = f"CPU time a row with {points[0]['workers']} and with {points[-1]['workers']} workers: {told}."
    table = Table(
        f"{capitalised(flavour['title'])}: what workers cost", columns, rows, frozenset({0, 2, 3, 4, 5})
    )
    return Chart(f"crowd-{flavour['name']}", "CPU time a row", summary, spec, table)


def _rounds(flavours: Sequence[dict[str, Any]]) -> str:
    """How many rounds of a point count: the last may have been cut short, and some set aside."""
    times = {len(used(point, TORCH, "rates")) for each in flavours for point in each["points"]} or {0}
    return f"{min(times)} to {max(times)} rounds" if len(times) > 1 else counted(max(times), "round")


def _set_aside(flavours: Sequence[dict[str, Any]]) -> str:
    """Say whether rounds were set aside, and whether points have no better ones."""
    shares = [point.get("others") or [] for each in flavours for point in each["points"]]
    bad = sum(len(each) - len(quiet(each)) for each in shares)
    without = sum(bool(each) and not quiet(each) for each in shares)
    if not bad:
        return ""
    text = f" In {bad} of {sum(map(len, shares))} rounds of single points others had {DISTURBED:.0%} of the CPUs or more"
    if not without:
        return f"{text}: they were set aside."
    return (
        f"{text}: they were set aside, but for {without} of {len(shares)} points, which have no better one."
    )
