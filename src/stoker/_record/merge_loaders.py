"""Merges loaders that a script made again for every epoch, on the same line, into one.

Each has a record of its own, with one epoch. Told apart they say little: a start that is paid for in every epoch looks like one
that is paid for once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from stoker._record.readings.memory_curve import as_columns, readings, thinned
from stoker._record.schema import Blame, Concurrency, LoaderRecord, Period, Totals, WorkerRecord

_MOST_PERIODS = 240
_MOST_EVENTS = 1000
_MOST_SLOW = 16
_MOST_ROWS = 20_000


def merged(loaders: Iterable[LoaderRecord]) -> list[LoaderRecord]:
    """Loaders of one process, in the order in which they began, with moments on one clock. Those given are used up."""
    groups: dict[Any, list[LoaderRecord]] = {}
    for place, each in enumerate(loaders):
        groups.setdefault(
            _key(each) if each.site is not None and each.totals.epochs == 1 else place, []
        ).append(each)
    return [_joined(group) for group in groups.values()]


def _key(loader: LoaderRecord) -> tuple[str | None, ...]:
    options = {name: option.value for name, option in loader.options.items()}
    told = json.dumps(options, sort_keys=True, default=repr)
    return loader.name, loader.engine, loader.executor, loader.dataset, loader.site, told


def _joined(group: Sequence[LoaderRecord]) -> LoaderRecord:
    first, *others = group
    if not others:
        return first
    for number, each in enumerate(group):
        for slow in each.slowest:
            slow.epoch += number
        if "epoch" in each.steps:
            each.steps["epoch"] = [epoch + number for epoch in each.steps["epoch"]]
    first.receipts = [receipt for each in group for receipt in each.receipts]
    _add_totals([each.totals for each in group])
    _add_all([each.load for each in group])
    first.blame = _blame(group)
    first.workers = _workers(group)
    first.concurrency = _concurrency(group)
    first.slowest = sorted((slow for each in group for slow in each.slowest), key=lambda slow: -slow.ns)[
        :_MOST_SLOW
    ]
    events = [event for each in group for event in each.events]
    first.events = events[-_MOST_EVENTS:]
    first.events_dropped = sum(each.events_dropped for each in group) + len(events) - len(first.events)
    first.periods = _periods([period for each in group for period in each.periods])
    first.memory = as_columns(thinned([reading for each in group for reading in readings(each.memory)]))
    first.steps_dropped = sum(each.steps_dropped for each in group)
    caches = [each.cache for each in group if each.cache is not None]
    if caches:
        _add_all(caches)
        first.cache = caches[0]
    _join_steps(first, group)
    return first


def _add_totals(totals: Sequence[Totals]) -> None:
    """Into the first. How long the first batch took is the first loader's, the window the last one's."""
    first, last = totals[0], totals[-1]
    first_batch_ns = next((each.first_batch_ns for each in totals if each.first_batch_ns is not None), None)
    _add_all(totals)
    first.first_batch_ns, first.window = first_batch_ns, last.window


def _add_all(parts: Sequence[Any]) -> None:
    """Add numbers, and histograms by their places, into the first. A value that was never measured stays None."""
    first = parts[0]
    for each in fields(first):
        values = [value for part in parts if (value := getattr(part, each.name)) is not None]
        if not values:
            continue
        if isinstance(values[0], list):
            length = max(len(value) for value in values)
            padded = [[*value, *[0] * (length - len(value))] for value in values]
            setattr(first, each.name, [sum(column) for column in zip(*padded, strict=True)])
        else:
            setattr(first, each.name, sum(values))


def _blame(group: Sequence[LoaderRecord]) -> list[Blame]:
    sums: dict[tuple[str, int, str], int] = {}
    for each in (blame for loader in group for blame in loader.blame):
        key = (each.stage, each.worker, each.cause)
        sums[key] = sums.get(key, 0) + each.ns
    return sorted((Blame(*key, ns) for key, ns in sums.items()), key=lambda each: -each.ns)


def _workers(group: Sequence[LoaderRecord]) -> list[WorkerRecord]:
    """By number: each is another process in every epoch, of which the last one is named."""
    found: dict[int, WorkerRecord] = {}
    for each in (worker for loader in group for worker in loader.workers):
        known = found.setdefault(each.worker, each)
        if known is not each:
            growth = [
                size for size in (known.private_growth_bytes, each.private_growth_bytes) if size is not None
            ]
            threads = [count for count in (known.threads, each.threads) if count is not None]
            _add_all([known, each])
            known.worker, known.pid = each.worker, each.pid
            known.pss_bytes, known.private_bytes = each.pss_bytes, each.private_bytes
            known.private_growth_bytes, known.threads = max(growth, default=None), max(threads, default=None)
    return [found[number] for number in sorted(found)]


def _concurrency(group: Sequence[LoaderRecord]) -> list[Concurrency]:
    found: dict[int, Concurrency] = {}
    for each in (part for loader in group for part in loader.concurrency):
        known = found.setdefault(each.workers, Concurrency(each.workers, 0, 0))
        known.rows += each.rows
        known.cpu_ns += each.cpu_ns
    return [found[count] for count in sorted(found)]


def _periods(periods: list[Period]) -> list[Period]:
    while len(periods) > _MOST_PERIODS:
        periods = [_pair(*periods[at : at + 2]) for at in range(0, len(periods), 2)]
    return periods


def _pair(first: Period, second: Period | None = None) -> Period:
    if second is None:
        return first
    causes = {
        cause: first.causes.get(cause, 0) + second.causes.get(cause, 0)
        for cause in {**first.causes, **second.causes}
    }
    return Period(
        first.began_ns, second.ended_ns, first.steps + second.steps,
        first.wait_ns + second.wait_ns, first.step_ns + second.step_ns, causes,
    )  # fmt: skip


def _join_steps(first: LoaderRecord, group: Sequence[LoaderRecord]) -> None:
    first.steps, dropped = joined_steps([each.steps for each in group], _MOST_ROWS)
    first.steps_dropped += dropped


def joined_steps(tables: Iterable[dict[str, list[int]]], most: int) -> tuple[dict[str, list[int]], int]:
    """Return tables of steps as one: its first rows and its last ones, ``most`` in all; and how many rows were left out.

    A column that a table does not have is 0 in all of its rows.
    """
    filled = [(table, len(next(iter(table.values())))) for table in tables if table]
    columns: dict[str, list[int]] = {name: [] for table, _ in filled for name in table}
    for table, rows in filled:
        for name, column in columns.items():
            column += table.get(name) or [0] * rows
    left_out = max(0, sum(rows for _, rows in filled) - most)
    if left_out:
        half = most // 2
        columns = {name: [*column[:half], *column[-half:]] for name, column in columns.items()}
    return columns, left_out
