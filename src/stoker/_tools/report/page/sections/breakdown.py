"""Shows where the time of a step goes: training, and waiting for data by cause; and when in the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker._tools.render.section import Chart, Section, Table
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections.parts.time_shares import time_shares
from stoker._tools.report.page.sections.waits import waits
from stoker._tools.report.page.terms import (
    MEANS,
    TRAINING,
    by_run,
    cut,
    loaders,
    ms,
    order,
    percent,
    title,
    took,
)
from stoker._tools.report.page.vega import coloured, measured, named, tips
from stoker._tools.report.verdict.table import RECORDING, cause_of, plain
from stoker._tools.report.verdict.verdict import LoaderVerdict

_MOST_LOADERS = 4
_LEAST_NS = 1000
"""What rounding leaves over is less."""
_LEAST_SHARE = 0.001
"""A part below this is not drawn; the table has it."""

Bar = tuple[str, int, dict[str, int]]
"""Of a loader: its label, its steps, nanoseconds by part."""


def section(material: Material) -> Section | None:
    """A bar for each run, or each loader of one, and the course of the one that costs most."""
    bars = [bar for run in material.runs for bar in _bars(run, len(material.runs) > 1)]
    if not bars:
        return None
    over_time = by_run(
        material.runs, lambda loader, _, number: (time_shares(loader, number), waits(loader, number))
    )
    return Section("breakdown", "Where a step's time goes", (_chart(bars), *over_time))


def _bars(run: ReportedRun, several: bool) -> list[Bar]:
    pairs = [(loader, verdict) for loader, verdict in loaders(run) if verdict.steps > 0 and _divided(verdict)]
    pairs = pairs[:_MOST_LOADERS]
    found = []
    for loader, verdict in pairs:
        label = title(loader)
        if several:
            label = cut(run.label, 28) if len(pairs) == 1 else f"{cut(run.label, 20)}: {label}"
        found.append((label, verdict.steps, _divided(verdict)))
    return found


def _divided(verdict: LoaderVerdict) -> dict[str, int]:
    sums = {TRAINING: verdict.causes.step_ns}
    for part in verdict.causes.parts:
        name = plain(cause_of(part))
        sums[name] = sums.get(name, 0) + part.ns
    return {name: sums[name] for name in sorted(sums, key=order) if sums[name] >= _LEAST_NS}


def _chart(bars: Sequence[Bar]) -> Chart:
    values: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    for label, steps, sums in bars:
        for name, ns in sums.items():
            share = ns / sum(sums.values())
            means = MEANS.get(name, "")
            rows.append((label, name, took(ns / steps), percent(share), means))
            value = {"loader": label, "part": name, "ms": ms(ns / steps), "share": round(share, 4)}
            if share >= _LEAST_SHARE:
                values.append({**value, "order": order(name), "means": means})
    spec = {
        "data": {"values": values},
        "height": {"step": 44},
        "mark": "bar",
        "encoding": {
            "y": named("loader", sort=[label for label, _, _ in bars]),
            "x": measured("ms", "milliseconds of a step", stack="zero"),
            "color": coloured("part", values),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tips(
                ("part", "part"),
                ("means", "that is"),
                ("ms", "ms per step", ".2f"),
                ("share", "of the step", ".1%"),
            ),
        },
    }
    table = Table(
        f"A step's time in its parts: {bars[0][0]}" if len(bars) == 1 else "A step's time in its parts",
        ("loader", "part", "per step", "share", "that is")[len(bars) == 1 :],
        tuple(row[len(bars) == 1 :] for row in rows),
        numeric=frozenset({1, 2} if len(bars) == 1 else {2, 3}),
    )
    return Chart("breakdown-chart", "A step in its parts", " ".join(map(_bar_text, bars)), spec, table)


def _bar_text(bar: Bar) -> str:
    label, steps, sums = bar
    waiting = {name: ns for name, ns in sums.items() if name not in (TRAINING, RECORDING)}
    whole_ns = sum(sums.values())
    text = f"{label}: a step takes {took(whole_ns / steps)}"
    kept = sums.get(RECORDING, 0)
    recording = f"{percent(kept / whole_ns)} is making this record" if kept else ""
    if not waiting:
        return f"{text}, of which {recording}." if kept else f"{text}, all of it training."
    most = max(waiting, key=waiting.__getitem__)
    text += f", of which {percent(sum(waiting.values()) / whole_ns)} is waiting for data, most of it {most}"
    return f"{text}; {recording}." if kept else f"{text}."
