"""Shows what the training loop, the workers and the ready batches did over part of the run."""

from __future__ import annotations

from typing import Any

from stoker._record.schema import LoaderRecord
from stoker._tools.render.section import Chart, Part, Prose, Section, Table
from stoker._tools.render.theme import colour
from stoker._tools.report.page.lane_bars import Bar, Stretch, around_worst, numbered
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.terms import DOING, by_run, ms, title, took
from stoker._tools.report.page.vega import coloured, measured, named, tips
from stoker.errors import RecordError

_LABELLED_PX = 18
"""A bar that is wider has its batch's number in it."""
_MOST_ROWS = 40
_AXIS = "milliseconds of this stretch"


def section(material: Material) -> Section | None:
    """Return the section. It shows the loader of each run that costs most, around its longest wait."""
    parts = by_run(material.runs, lambda loader, _, number: _parts(loader, number))
    return Section("lanes", "Workers and batches over time", parts) if parts else None


def _parts(loader: LoaderRecord, number: int) -> list[Part]:
    try:
        stretch = around_worst(numbered(loader))
    except RecordError as error:
        return [Prose(f"The table of steps cannot be drawn: {error}.")]
    if stretch is None or not stretch.bars:
        return []
    parts: list[Part] = [_chart(loader, stretch, number)]
    told = _caption(loader, stretch)
    return [*parts, Prose(told)] if told else parts


def _caption(loader: LoaderRecord, stretch: Stretch) -> str:
    told = []
    if not loader.kind.workers:
        told.append("There are no workers: the training process makes every batch while it waits for it.")
    elif not stretch.measured:
        told.append(
            "The record does not tell when workers were at these batches: only the training loop is drawn."
        )
    if loader.steps_dropped:
        told.append(f"The record leaves out {loader.steps_dropped:,} batches of the run.")
    if stretch.hidden:
        told.append(f"{stretch.hidden} more batches lay ready than there are lanes for.")
    return " ".join(told)


def _chart(loader: LoaderRecord, stretch: Stretch, number: int) -> Chart:
    values = [_value(each, stretch) for each in stretch.bars]
    long_ms = ms(stretch.ended_ns - stretch.began_ns)
    lanes: dict[str, Any] = {"sort": list(stretch.lanes), "scale": {"domain": list(stretch.lanes)}}
    hover = {"type": "point", "fields": ["batch", "epoch"], "on": "pointerover", "clear": "pointerout"}
    bars = {
        "params": [{"name": f"batch{number}", "select": hover}],
        "mark": {"type": "bar", "height": {"band": 0.82}, "cornerRadius": 1},
        "encoding": {
            "x": measured("from", _AXIS, scale={"domain": [0, long_ms], "nice": False}),
            "x2": {"field": "to"},
            "y": named("lane", **lanes),
            "color": coloured("doing", values, DOING),
            "opacity": {"condition": {"param": f"batch{number}", "value": 1}, "value": 0.3},
            "tooltip": tips(
                ("doing", "doing"), ("batch", "batch", ","), ("epoch", "epoch", ","), ("lane", "who"), ("rows", "rows", ","),
                ("part", "part"), ("took", "took (ms)", ".2f"), ("at", "from (s of the run)", ".4f"), ("slow", "slowest row"),
            ),
        },
    }  # fmt: skip
    labels = {
        "transform": [
            {"filter": f"datum.label && (datum.to - datum.from) / {long_ms or 1} * width > {_LABELLED_PX}"}
        ],
        "mark": {"type": "text", "color": colour("card"), "fontSize": 10, "aria": False, "tooltip": None},
        "encoding": {
            "x": measured("middle", _AXIS),
            "y": named("lane", **lanes),
            "text": {"field": "label", "type": "nominal"},
        },
    }
    spec = {"data": {"values": values}, "height": {"step": 24}, "layer": [bars, labels]}
    title_ = f"Around the longest wait for {title(loader)}"
    return Chart(f"lanes-chart-{number}", title_, _summary(stretch), spec, _table(stretch))


def _summary(stretch: Stretch) -> str:
    worst = stretch.worst
    text = (
        f"{stretch.batches} batches, from {stretch.began_ns / 1e9:.2f} s to {stretch.ended_ns / 1e9:.2f} s of the run. Batch"
        f" {worst.seq} of epoch {worst.epoch} was waited for {took(worst.given_ns - worst.asked_ns)}."
    )
    held = sum(1 for each in stretch.lain if each.held_ns > 0)
    if held:
        whom = ("was", "it") if held == 1 else ("were", "them")
        text += f" {held} {whom[0]} made and had to wait for an earlier one: order held {whom[1]} back."
    return text


def _value(bar: Bar, stretch: Stretch) -> dict[str, Any]:
    from_ms, to_ms = ms(bar.began_ns - stretch.began_ns), ms(bar.ended_ns - stretch.began_ns)
    batch, part = bar.batch, bar.part
    rows = batch.rows if part is None else part.rows
    timed = part is not None and part.slow_row >= 0 and part.slow_ns > 0
    return {
        "lane": bar.lane,
        "doing": bar.doing,
        "from": from_ms,
        "to": to_ms,
        "middle": round((from_ms + to_ms) / 2, 4),
        "took": round(to_ms - from_ms, 4),
        "at": round(bar.began_ns / 1e9, 5),
        "batch": batch.seq,
        "epoch": batch.epoch,
        "rows": rows,
        "part": f"{part.part + 1} of {len(batch.parts)}"
        if part is not None and len(batch.parts) > 1
        else "all of it",
        "slow": f"row {part.slow_row}, {took(part.slow_ns)}" if part is not None and timed else "not timed",
        "label": str(batch.seq)
        if bar.doing in ("fetch", "ready, held by order", "ready ahead of time")
        else "",
    }


def _table(stretch: Stretch) -> Table:
    found = {(bar.batch.epoch, bar.batch.seq): bar.batch for bar in stretch.bars}
    lain = {(each.batch.epoch, each.batch.seq): each for each in stretch.lain}
    rows = []
    for (epoch, seq), batch in list(found.items())[:_MOST_ROWS]:
        lay = lain.get((epoch, seq))
        workers = sorted({part.worker for part in batch.parts if part.worker >= 0})
        made_ns = sum(part.sent_ns - part.received_ns for part in batch.parts if part.measured)
        rows.append(
            (
                f"{epoch}",
                f"{seq}",
                ", ".join(map(str, workers)) or "none",
                took(made_ns) if made_ns else "not measured",
                took(0 if lay is None else lay.held_ns),
                took(0 if lay is None else lay.ahead_ns),
                took(batch.given_ns - batch.asked_ns),
            )
        )
    columns = ("epoch", "batch", "worker", "making it took", "held by order", "ready ahead", "waited for it")
    caption = "Batch by batch"
    if len(rows) < len(found):
        caption += f", the first {len(rows)} of {len(found)}"
    return Table(caption, columns, tuple(rows), numeric=frozenset({0, 1, 3, 4, 5, 6}))
