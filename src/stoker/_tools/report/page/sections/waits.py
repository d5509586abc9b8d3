"""Shows every wait of a run: where the long ones were, and which began an epoch. A part of the breakdown."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from stoker._record.schema import LoaderRecord
from stoker._tools.render.section import Chart, Table
from stoker._tools.report.page.lane_bars import numbered
from stoker._tools.report.page.terms import ms, title, took
from stoker._tools.report.page.vega import coloured, measured, tips
from stoker._tools.report.trace.steps import Batch
from stoker.errors import RecordError

_MOST_DRAWN = 300
_MOST_ROWS = 20
_LEAST = 3
_KINDS = {"first of an epoch": "series-7", "not ready yet": "wait", "was ready": "train"}


def waits(loader: LoaderRecord, number: int) -> Chart | None:
    """Return the chart of one loader; None without a table of steps. ``number`` tells runs apart."""
    try:
        found = numbered(loader)
    except RecordError:
        return None  # the lanes say so
    if len(found) < _LEAST:
        return None
    firsts = {id(found[0])} | {
        id(after) for before, after in itertools.pairwise(found) if after.epoch != before.epoch
    }
    drawn = _drawn(found)
    values: list[dict[str, Any]] = [_value(each, id(each) in firsts) for each in drawn]
    spec = {
        "data": {"values": values},
        "height": 160,
        "mark": {"type": "rule", "strokeWidth": 3},
        "encoding": {
            "x": measured("at", "seconds since the run began", scale={"zero": False, "nice": False}),
            "y": measured("ms", "waited for a batch (ms)"),
            "y2": {"datum": 0},
            "color": coloured("kind", values, _KINDS),
            "tooltip": tips(
                ("kind", "batch"), ("ms", "waited (ms)", ".2f"), ("seq", "number", ","), ("epoch", "epoch", ","),
                ("at", "at (s)", ".2f"),
            ),
        },
    }  # fmt: skip
    rows = sorted(found, key=lambda each: each.asked_ns - each.given_ns)[:_MOST_ROWS]
    table = Table(
        f"The longest waits for {title(loader)}, of {len(found):,} batches",
        ("epoch", "batch", "asked for at", "waited", "kind"),
        tuple(_row(each, id(each) in firsts) for each in rows),
        numeric=frozenset({0, 1, 2, 3}),
    )  # fmt: skip
    return Chart(f"breakdown-waits-{number}", "Every wait", _summary(loader, found, len(drawn)), spec, table)


def _summary(loader: LoaderRecord, found: Sequence[Batch], drawn: int) -> str:
    longest = max(found, key=_waited_ns)
    ready = sum(1 for each in found if each.ready)
    text = (
        f"How long the training loop waited for each batch: {took(_waited_ns(longest))} at most, for batch {longest.seq} of epoch"
        f" {longest.epoch}; {ready:,} of {len(found):,} were ready."
    )
    if drawn < len(found):
        text += f" Of neighbours only the longest is drawn, {drawn} in all."
    if loader.steps_dropped:
        text += f" The record leaves out {loader.steps_dropped:,} rows of the run."
    return text


def _drawn(found: Sequence[Batch]) -> list[Batch]:
    """The longest of neighbours when there are too many."""
    size = -(-len(found) // _MOST_DRAWN)
    return [max(found[at : at + size], key=_waited_ns) for at in range(0, len(found), size)]


def _value(batch: Batch, first: bool) -> dict[str, Any]:
    return {
        "at": round(batch.asked_ns / 1e9, 4),
        "ms": ms(_waited_ns(batch)),
        "seq": batch.seq,
        "epoch": batch.epoch,
        "kind": _kind(batch, first),
    }


def _row(batch: Batch, first: bool) -> tuple[str, ...]:
    at = f"{batch.asked_ns / 1e9:.3f} s"
    return str(batch.epoch), str(batch.seq), at, took(_waited_ns(batch)), _kind(batch, first)


def _kind(batch: Batch, first: bool) -> str:
    return "first of an epoch" if first else "was ready" if batch.ready else "not ready yet"


def _waited_ns(batch: Batch) -> int:
    return batch.given_ns - batch.asked_ns
