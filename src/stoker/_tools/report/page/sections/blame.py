"""Shows what the waiting is blamed on: stage by cause, and worker by worker. The parts add up to the wait."""

from __future__ import annotations

from typing import Any

from stoker._record.finding import capitalised
from stoker._record.schema import STAGES, LoaderRecord
from stoker._tools.render.section import Chart, Section, Table
from stoker._tools.render.theme import colour
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.terms import MEANS, by_run, order, percent, title, took
from stoker._tools.report.page.vega import coloured, measured, named, tips
from stoker._tools.report.verdict.table import cause_of, plain
from stoker._tools.report.verdict.verdict import LoaderVerdict

_MOST_WORKERS = 32
_STAGES = [plain(each) for each in STAGES]
_LEAST_TEXT = 0.005
"""A cell below this has no text: there is no room for it on a phone."""
_DARK = 0.45
"""Of the largest cell: from here on the text in it is light."""


def section(material: Material) -> Section | None:
    """Return the section. It shows the loader of each run that costs most."""
    parts = by_run(
        material.runs,
        lambda loader, verdict, number: (_stages(loader, verdict, number), _workers(loader, number)),
    )
    return Section("blame", "What is to blame", parts) if parts else None


def _stages(loader: LoaderRecord, verdict: LoaderVerdict, number: int) -> Chart | None:
    """A table of stages and causes, the darker the longer."""
    cells: dict[tuple[str, str], int] = {}
    for part in verdict.causes.parts:
        key = plain(part.stage), plain(cause_of(part))
        cells[key] = cells.get(key, 0) + max(0, part.ns)
    whole_ns = sum(cells.values())
    if not whole_ns:
        return None
    causes = sorted({cause for _, cause in cells}, key=order)
    stages = sorted(
        {stage for stage, _ in cells}, key=lambda each: _STAGES.index(each) if each in _STAGES else 99
    )
    largest_ns = max(cells.values())
    values = [
        {
            "stage": stage,
            "cause": cause,
            "share": round(ns / whole_ns, 5),
            "ms": round(ns / 1e6, 3),
            "text": f"{ns / whole_ns:.0%}" if ns / whole_ns >= _LEAST_TEXT else "",
            "much": ns > _DARK * largest_ns,
            "means": MEANS.get(cause, ""),
        }
        for (stage, cause), ns in cells.items()
    ]
    cell = {
        "mark": {"type": "rect", "cornerRadius": 2, "color": colour("wait")},
        "encoding": {"opacity": measured("share", None, scale={"range": [0.12, 1]}, legend=None)},
    }
    shade = {"condition": {"test": "datum.much", "value": colour("card")}, "value": colour("ink")}
    text = {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {"text": {"field": "text", "type": "nominal"}, "color": shade},
    }
    axis = {"orient": "top", "labelAngle": -35, "labelOverlap": False}
    spec = {
        "data": {"values": values},
        "height": {"step": 30},
        "encoding": {
            "x": named("cause", sort=causes, axis=axis),
            "y": named("stage", sort=stages),
            "tooltip": tips(
                ("stage", "stage"), ("cause", "cause"), ("means", "that is"), ("share", "of all waiting", ".1%"),
                ("ms", "ms in all", ",.1f"),
            ),
        },
        "layer": [cell, text],
    }  # fmt: skip
    rows = sorted(cells.items(), key=lambda item: -item[1])
    table = Table(
        f"All waiting for {title(loader)}: {took(whole_ns)}",
        ("stage", "cause", "time", "share"),
        tuple((stage, cause, took(ns), percent(ns / whole_ns)) for (stage, cause), ns in rows),
        numeric=frozenset({2, 3}),
    )
    (stage, cause), most_ns = rows[0]
    summary = (
        f"Of {took(whole_ns)} of waiting, {percent(most_ns / whole_ns)} was spent in {stage}, for {cause}"
    )
    summary += f": {MEANS[cause]}." if cause in MEANS else "."
    return Chart(f"blame-chart-{number}", "Where the wait was spent, and why", summary, spec, table)


def _workers(loader: LoaderRecord, number: int) -> Chart | None:
    """Bars for workers, when there are several."""
    sums: dict[tuple[int, str], int] = {}
    for each in loader.blame:
        if each.ns > 0 and each.stage != "record":
            key = each.worker, plain(each.cause)
            sums[key] = sums.get(key, 0) + each.ns
    workers = sorted({worker for worker, _ in sums})
    if len([each for each in workers if each >= 0]) < 2:
        return None
    shown = workers[:_MOST_WORKERS]
    whole_ns = sum(sums.values())
    values: list[dict[str, Any]] = [
        {"who": _who(worker), "part": cause, "ms": round(ns / 1e6, 3), "share": round(ns / whole_ns, 5), "order": order(cause)}
        for (worker, cause), ns in sums.items()
        if worker in shown
    ]  # fmt: skip
    spec = {
        "data": {"values": values},
        "height": {"step": 26},
        "mark": "bar",
        "encoding": {
            "y": named("who", sort=[_who(each) for each in shown]),
            "x": measured("ms", "milliseconds of waiting", stack="zero"),
            "color": coloured("part", values),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tips(
                ("who", "who"),
                ("part", "cause"),
                ("ms", "ms in all", ",.1f"),
                ("share", "of all waiting", ".1%"),
            ),
        },
    }
    totals = {worker: sum(ns for (each, _), ns in sums.items() if each == worker) for worker in workers}
    rows = tuple(
        (_who(worker), cause, took(ns), percent(ns / whole_ns))
        for (worker, cause), ns in sorted(sums.items(), key=lambda item: (item[0][0], -item[1]))
    )
    table = Table(
        "By worker, as each wait was blamed when it was over",
        ("who", "cause", "time", "share"),
        rows,
        frozenset({2, 3}),
    )
    most = max(totals, key=totals.__getitem__)
    summary = f"{_who(most)} was waited for most: {percent(totals[most] / whole_ns)} of the time."
    if len(workers) > len(shown):
        summary += f" {len(workers) - len(shown)} workers more are in the table."
    return Chart(f"blame-workers-{number}", "Waits by worker", capitalised(summary), spec, table)


def _who(worker: int) -> str:
    return f"worker {worker}" if worker >= 0 else "training process"
