"""Measures how much of a list forked workers copy by only reading it, before and after it is shared.

The list lies in the parent's memory, and a fork shares it until somebody writes. Reading a Python object writes its reference
count, so the kernel copies its page. Counted is what is private to each worker (``_host.process_memory``), from the arrival
of its first batch, so that starting up is no part of it, to the end of the epoch.
"""

from __future__ import annotations

import sys
from typing import Any

from stoker._record.finding import size
from stoker._tools.demo import child
from stoker._tools.demo.act import ActContext, Tell
from stoker._tools.render.section import Chart, Code, Part, Prose, Section, Table
from stoker._tools.report.page import vega

TITLE = "Memory that workers copy"
SECONDS = (4.0, 11.0)

MIB = 1 << 20
KINDS = ("torch", "stoker", "stoker with share")
WORKERS = 4
_BATCH = 128
_ROWS = (60_000, 300_000)
"""Quick and whole. A row takes about 180 bytes."""
_READINGS = 12
"""Over the epoch: more often at its beginning, where most is copied."""
_LIMIT_S = 60.0
_UNUSUAL_S = 0.6
"""Of the budget asked for: below it, a third of the rows will do."""


def run(stage: ActContext) -> dict[str, Any]:
    """Three epochs, one after the other, each in a process of its own."""
    reason = _impossible()
    if reason is not None:
        return {"skipped": reason}
    rows = _ROWS[0 if stage.quick else 1]
    if stage.budget_s < _UNUSUAL_S * SECONDS[0 if stage.quick else 1]:
        rows //= 3
    return measured(rows, WORKERS, stage.tell)


def measured(rows: int, workers: int, tell: Tell) -> dict[str, Any]:
    """The three kinds on a list of so many rows."""
    found = {}
    for number, kind in enumerate(KINDS):
        tell(kind, number / len(KINDS))
        within = lambda what, share, number=number: tell(what, (number + share) / len(KINDS))  # noqa: E731
        found[kind] = child.perform(_epoch, kind, rows, workers, limit_s=_LIMIT_S, tell=within)
    tell("", 1.0)
    return {"rows": rows, "workers": workers, "kinds": found}


def _impossible() -> str | None:
    from stoker._host.process_memory import footprint

    if footprint() is None:
        return "the kernel does not say here what a process occupies (there is no /proc/self/smaps)"
    return child.possible()


def _epoch(tell: Tell, kind: str, rows: int, workers: int) -> dict[str, Any]:
    """In the child: one epoch, with readings of all workers on the way."""
    import torch.utils.data

    import stoker
    from stoker._tools.demo.path_list import Listed, collate

    dataset: Any = Listed(rows)
    objects_bytes = _objects_bytes(dataset.rows)
    if kind == "stoker with share":
        dataset = stoker.share(dataset)
    loader_type = torch.utils.data.DataLoader if kind == "torch" else stoker.DataLoader
    loader: Any = loader_type(
        dataset,
        batch_size=_BATCH,
        shuffle=True,
        num_workers=workers,
        collate_fn=collate,
        multiprocessing_context="fork",
    )
    batches = len(loader)
    iterator = iter(loader)
    pids = [each.pid for each in iterator._workers]
    moments = {round(batches * (step / _READINGS) ** 2) for step in range(1, _READINGS + 1)}
    first: dict[int, int] = {}
    readings: list[dict[str, Any]] = []
    delivered = 0
    for number, batch in enumerate(iterator, start=1):
        count, pid = batch.tolist()
        delivered += count
        if pid not in first:
            first[pid] = _private_bytes(pid)
        if number in moments and len(first) == len(pids):
            grown = [_private_bytes(each) - first[each] for each in pids]
            readings.append({"share": delivered / rows, "grown_bytes": grown})
            tell(kind, number / batches)
        if number == batches:
            break  # the workers are still there
    if not readings:
        raise RuntimeError(f"{len(first)} of {len(pids)} workers made a batch: there is nothing to compare")
    return {
        "samples": delivered,
        "objects_bytes": objects_bytes,
        "first_bytes": [first[each] for each in pids],
        "readings": readings,
    }


def _private_bytes(pid: int) -> int:
    from stoker._host.process_memory import footprint

    found = footprint(pid)
    if found is None:
        raise RuntimeError(f"worker {pid} ended in mid-epoch")
    return found.private_bytes


def _objects_bytes(rows: list[tuple[str, int]]) -> int:
    """Return the bytes of the list, its tuples and paths; the labels are small numbers, of which Python has one each."""
    return sys.getsizeof(rows) + sum(sys.getsizeof(row) + sys.getsizeof(row[0]) for row in rows)


def grown_bytes(told: dict[str, Any]) -> int:
    """What all workers of a kind copied over the epoch."""
    return max(0, int(sum(told["readings"][-1]["grown_bytes"])))


def lines(result: dict[str, Any]) -> list[str]:
    """What all workers grew by."""
    if "skipped" in result:
        return [f"not measured: {result['skipped']}"]
    grown = {kind: size(grown_bytes(told)) for kind, told in result["kinds"].items()}
    them = f"torch's {result['workers']} workers"
    return [f"{them} copied {grown['torch']} in an epoch, with share {grown['stoker with share']}"]


def sections(result: dict[str, Any]) -> list[Section]:
    """The growth of a worker over the epoch, in a chart."""
    if "skipped" in result:
        return [Section("demo-memory", TITLE, (Prose(f"Not measured: {result['skipped']}."),))]
    objects_bytes = result["kinds"]["torch"]["objects_bytes"]
    grown = {kind: grown_bytes(told) for kind, told in result["kinds"].items()}
    parts: tuple[Part, ...] = (
        Prose(
            f"A dataset holds a list of {result['rows']:,} paths with labels: {size(objects_bytes)} of Python objects. "
            "Forked workers share it with the training process, until they read it: that writes reference counts, and the "
            f"kernel copies the page. Over one epoch {result['workers']} workers of torch's loader copied "
            f"{size(grown['torch'])}, and {size(grown['stoker with share'])} where the list was shared before."
        ),
        _chart(result, grown),
        Prose(
            "The copies are no matter of the loader: without `share` stoker's workers make them as well. A shared list is one "
            "sealed copy that all workers read, and works with torch's loader too:"
        ),
        Code("dataset = stoker.share(dataset)", "python"),
    )
    return [Section("demo-memory", TITLE, parts)]


def _chart(result: dict[str, Any], grown: dict[str, int]) -> Chart:
    values = [
        {"kind": kind, "share": share, "mib": mib}
        for kind, told in result["kinds"].items()
        for share, mib in [
            (0.0, 0.0),
            *((each["share"], _mean(each["grown_bytes"]) / MIB) for each in told["readings"]),
        ]
    ]
    spec = {
        "data": {"values": values},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": vega.measured("share", "of the epoch", axis={"format": ".0%"}, scale={"domain": [0, 1]}),
            "y": vega.measured("mib", "MiB copied, per worker"),
            "color": vega.painted("kind", dict(zip(KINDS, ("torch", "stoker", "series-3"), strict=True))),
            "tooltip": vega.tips(
                ("kind", "loader"), ("share", "of the epoch", ".0%"), ("mib", "MiB copied, per worker", ".1f")
            ),
        },
    }
    rows = [
        (
            kind,
            size(_mean(told["first_bytes"])),
            size(_mean(told["first_bytes"]) + _mean(told["readings"][-1]["grown_bytes"])),
            size(grown[kind]),
        )
        for kind, told in result["kinds"].items()
    ]
    table = Table(
        "Private memory of the workers",
        ("loader", "a worker, after its first batch", "at the end of the epoch", "all workers grew by"),
        tuple(rows),
        numeric=frozenset({1, 2, 3}),
    )
    summary = f"Workers of both loaders copy the list as they read it, {size(grown['torch'])} in all; a shared one is not copied."
    return Chart("demo-memory-chart", "What a worker copies over an epoch", summary, spec, table)


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)
