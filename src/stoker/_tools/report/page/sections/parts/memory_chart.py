"""The chart of memory over time: each worker's curve, or the band of hundreds, above what all occupy together. Pure."""

from __future__ import annotations

from statistics import median
from typing import Any

from stoker._tools.render.theme import SERIES, colour
from stoker._tools.report.page.sections.parts.memory_curves import (
    PARENT,
    LoaderMemory,
    ProcessMemory,
    process_name,
)
from stoker._tools.report.page.terms import scale
from stoker._tools.report.page.vega import measured, named, tips

_MOST_LINES = 8
_FEW_POINTS = 96
"""Up to so many are drawn as dots too: a pointer finds them."""
_SECONDS = "seconds since the run began"
_STACK = {"training process": "series-7", "workers, shared": "series-3", "workers, private": "series-2"}
_DASHES = {"domain": ["PSS", "private"], "range": [[5, 3], [1, 0]]}


def spec(seen: LoaderMemory) -> dict[str, Any]:
    """Two views on one time axis: of each process, and of all."""
    one = _unit(max(reading.pss_bytes for each in seen.processes for reading in each.readings))
    whole = _unit(max(each.parent_bytes + each.private_bytes + each.shared_bytes for each in seen.together))
    if seen.moments < 2:
        return _bars(seen, *one)
    workers = [each for each in seen.processes if each.worker != PARENT]
    shown = workers or list(seen.processes)
    views = [_lines(shown, *one) if len(shown) <= _MOST_LINES else _band(seen, *one), _stacked(seen, *whole)]
    return {
        "vconcat": views,
        "spacing": 28,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }


def _unit(most_bytes: int) -> tuple[str, int]:
    return ("GiB", 1 << 30) if most_bytes >= 2 << 30 else ("MiB", 1 << 20)


def _amount(nbytes: float, scale_bytes: int) -> float:
    return round(nbytes / scale_bytes, 3)


def _lines(shown: list[ProcessMemory], unit: str, scale_bytes: int) -> dict[str, Any]:
    """A line for what each has for itself, a dashed one for its proportional share."""
    values = [
        {
            "s": round(each.at_ns / 1e9, 3), "process": process_name(each.worker), "pid": each.pid, "kind": kind,
            "size": _amount(nbytes, scale_bytes),
        }
        for process in shown
        for each in process.every
        for kind, nbytes in (("private", each.private_bytes), ("PSS", each.pss_bytes))
    ]  # fmt: skip
    names = {process_name(each.worker): SERIES[place % len(SERIES)] for place, each in enumerate(shown)}
    return {
        "data": {"values": values},
        "title": "Each process",
        "height": 190,
        "mark": {"type": "line", "point": {"size": 30} if len(values) <= _FEW_POINTS else False},
        "encoding": {
            "x": measured("s", _SECONDS, scale={"zero": False, "nice": False}),
            "y": measured("size", f"{unit} of a process"),
            "color": named("process", scale=scale(list(names), names)),
            "detail": named("pid"),
            "strokeDash": named("kind", scale=_DASHES, legend={"symbolType": "stroke"}),
            "tooltip": tips(
                ("process", "process"), ("pid", "pid"), ("kind", "kind"), ("size", unit, ",.1f"), ("s", "at (s)", ".1f"),
            ),
        },
    }  # fmt: skip


def _band(seen: LoaderMemory, unit: str, scale_bytes: int) -> dict[str, Any]:
    """From the smallest to the largest of many workers, with the middle one and the one that grew most."""
    values: list[dict[str, Any]] = []
    for moment in seen.together:
        sizes = sorted(each.private_bytes for each in moment.workers)
        values.append(
            {
                "s": round(moment.at_s, 3),
                "low": _amount(sizes[0], scale_bytes),
                "size": _amount(median(sizes), scale_bytes),
                "high": _amount(sizes[-1], scale_bytes),
                "line": "middle worker",
            }
        )
    grown = seen.most_grown
    tracked: list[dict[str, Any]] = [] if grown is None else [
        {"s": round(each.at_ns / 1e9, 3), "size": _amount(each.private_bytes, scale_bytes), "line": f"worker {grown.worker}"}
        for each in grown.readings
    ]  # fmt: skip
    x = measured("s", _SECONDS, scale={"zero": False, "nice": False})
    names = {"middle worker": "series-1"} | {each["line"]: "series-2" for each in tracked}
    line: dict[str, Any] = {
        "mark": {"type": "line"},
        "encoding": {
            "x": x,
            "y": measured("size", f"{unit} private"),
            "color": named("line", scale=scale(list(names), names)),
            "tooltip": tips(("line", "worker"), ("size", unit, ",.1f"), ("s", "at (s)", ".1f")),
        },
    }
    band = {
        "data": {"values": values},
        "mark": {"type": "area", "color": colour("series-1"), "opacity": 0.2, "line": False},
        "encoding": {
            "x": x,
            "y": measured("low", f"{unit} private"),
            "y2": {"field": "high"},
            "tooltip": tips(("low", f"smallest ({unit})", ",.1f"), ("high", f"largest ({unit})", ",.1f"), ("s", "at (s)", ".1f")),
        },
    }  # fmt: skip
    title = "Each worker's own memory: smallest to largest, the middle one, and the one that grew most"
    return {"title": title, "height": 190, "layer": [band, {"data": {"values": values + tracked}, **line}]}


def _stacked(seen: LoaderMemory, unit: str, scale_bytes: int) -> dict[str, Any]:
    values: list[dict[str, Any]] = [
        {"s": round(each.at_s, 3), "part": part, "size": _amount(nbytes, scale_bytes), "order": order}
        for each in seen.together
        for order, (part, nbytes) in enumerate(
            zip(_STACK, (each.parent_bytes, each.shared_bytes, each.private_bytes), strict=True)
        )
    ]
    present = {each["part"] for each in values if each["size"]}
    values = [each for each in values if each["part"] in present]
    return {
        "data": {"values": values},
        "title": "All together",
        "height": 150,
        "mark": {"type": "area", "opacity": 0.75, "line": False},
        "encoding": {
            "x": measured("s", _SECONDS, scale={"zero": False, "nice": False}),
            "y": measured("size", unit, stack="zero"),
            "color": named("part", scale=scale(present, _STACK)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tips(("part", "part"), ("size", unit, ",.1f"), ("s", "at (s)", ".1f")),
        },
    }


def _bars(seen: LoaderMemory, unit: str, scale_bytes: int) -> dict[str, Any]:
    """One reading of each: nothing to draw over time."""
    kinds = {"private": "series-2", "shared": "series-3"}
    values = [
        {"process": process_name(each.worker), "kind": kind, "size": _amount(nbytes, scale_bytes), "order": order}
        for each in seen.processes[:_MOST_LINES]
        for order, (kind, nbytes) in enumerate(
            (("private", each.last.private_bytes), ("shared", max(0, each.last.pss_bytes - each.last.private_bytes)))
        )
    ]  # fmt: skip
    return {
        "data": {"values": values},
        "height": {"step": 36},
        "mark": "bar",
        "encoding": {
            "y": named("process", sort=[process_name(each.worker) for each in seen.processes]),
            "x": measured("size", unit, stack="zero"),
            "color": named("kind", scale=scale(list(kinds), kinds)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tips(("process", "process"), ("kind", "kind"), ("size", unit, ",.1f")),
        },
    }
