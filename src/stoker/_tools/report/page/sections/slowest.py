"""Shows the slowest samples by index, and how long the waits were."""

from __future__ import annotations

from typing import Any

from stoker._record.schema import LoaderRecord, SlowestSample
from stoker._tools.render.section import Chart, Section, Table
from stoker._tools.render.theme import colour
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.terms import by_run, cut, ms, percent, title, took
from stoker._tools.report.page.vega import coloured, measured, named, tips

_MOST = 16
_KINDS = {"was waited for": "wait", "hidden by other batches": "quiet"}


def section(material: Material) -> Section | None:
    """Return the section. It shows the loader of each run that costs most."""
    parts = by_run(
        material.runs, lambda loader, _, number: (_samples(loader, number), _histogram(loader, number))
    )
    return Section("slowest", "Slowest samples", parts) if parts else None


def _samples(loader: LoaderRecord, number: int) -> Chart | None:
    slowest = sorted((each for each in loader.slowest if each.ns > 0), key=lambda each: -each.ns)[:_MOST]
    if not slowest:
        return None
    mean_ns = _mean_ns(loader)
    labels = _labels(slowest)
    values: list[dict[str, Any]] = [
        {
            "sample": label, "ms": ms(each.ns), "times": None if not mean_ns else round(each.ns / mean_ns, 2),
            "who": _who(each), "epoch": each.epoch, "batch": each.seq, "row": each.row, "blamed": ms(max(0, each.blamed_ns)),
            "kind": "was waited for" if each.blamed_ns > 0 else "hidden by other batches",
        }
        for label, each in zip(labels, slowest, strict=True)
    ]  # fmt: skip
    bars = {
        "mark": "bar",
        "encoding": {
            "y": named("sample", "index", sort=labels),
            "x": measured("ms", "milliseconds to fetch it"),
            "color": coloured("kind", values, _KINDS),
            "tooltip": tips(
                ("sample", "sample"), ("ms", "took (ms)", ",.2f"), ("times", "times the mean", ",.1f"),
                ("blamed", "waiting it is to blame for (ms)", ",.1f"),
                ("who", "made by"), ("epoch", "epoch", ","), ("batch", "batch", ","), ("row", "row", ","),
            ),
        },
    }  # fmt: skip
    layers: list[dict[str, Any]] = [bars]
    if mean_ns:
        layers.append(
            {
                "data": {"values": [{"ms": ms(mean_ns), "what": "mean of all samples"}]},
                "mark": {"type": "rule", "color": colour("ink"), "strokeDash": [4, 3]},
                "encoding": {
                    "x": measured("ms", "milliseconds to fetch it"),
                    "tooltip": tips(("what", "line"), ("ms", "ms", ".2f")),
                },
            }
        )
    spec = {"data": {"values": values}, "height": {"step": 22}, "layer": layers}
    rows = tuple(_row(label, each, mean_ns) for label, each in zip(labels, slowest, strict=True))
    table = Table(
        f"Slowest samples of {title(loader)}",
        ("index", "took", "times the mean", "made by", "epoch", "batch", "waiting it is to blame for"),
        rows,
        numeric=frozenset({1, 2, 4, 5, 6}),
    )
    return Chart(
        f"slowest-chart-{number}",
        "Slowest samples, by index",
        _summary(loader, slowest, labels, mean_ns),
        spec,
        table,
    )


def _summary(
    loader: LoaderRecord, slowest: list[SlowestSample], labels: list[str], mean_ns: float | None
) -> str:
    text = f"Sample {labels[0]} took longest, {took(slowest[0].ns)}"
    if mean_ns:
        text += f", {slowest[0].ns / mean_ns:,.1f} times the mean"
    blamed_ns = sum(max(0, each.blamed_ns) for each in slowest)
    wait_ns = loader.totals.wait_ns
    if blamed_ns and wait_ns > 0:
        text += (
            f". These {len(slowest)} are to blame for {percent(min(1.0, blamed_ns / wait_ns))} of all waiting"
        )
    return f"{text}."


def _row(label: str, slow: SlowestSample, mean_ns: float | None) -> tuple[str, ...]:
    times = f"{slow.ns / mean_ns:,.1f}" if mean_ns else "not measured"
    blamed = took(max(0, slow.blamed_ns))
    return label, took(slow.ns), times, _who(slow), str(slow.epoch), str(slow.seq), blamed


def _mean_ns(loader: LoaderRecord) -> float | None:
    """Return the mean of all samples: the workers' time at work, divided by their number."""
    rows = sum(each.rows for each in loader.workers)
    busy_ns = sum(each.busy_ns for each in loader.workers)
    return busy_ns / rows if rows > 0 and busy_ns > 0 else None


def _labels(slowest: list[SlowestSample]) -> list[str]:
    """An index may be anything, and one sample may be there twice; of a stream nobody knows an index."""
    found: list[str] = []
    for each in slowest:
        name = f"row {each.row} of batch {each.seq}" if each.index is None else cut(str(each.index), 32)
        found.append(
            name if name not in found else f"{name} (epoch {each.epoch}, batch {each.seq}, row {each.row})"
        )
    return found


def _who(slow: SlowestSample) -> str:
    return f"worker {slow.worker}" if slow.worker >= 0 else "training process"


def _histogram(loader: LoaderRecord, number: int) -> Chart | None:
    """How many waits were how long; each step is twice the one before."""
    counts = [each if type(each) is int and each > 0 else 0 for each in loader.totals.wait_histogram][:40]
    if not any(counts):
        return None
    first = next(place for place, count in enumerate(counts) if count)
    last = max(place for place, count in enumerate(counts) if count)
    whole = sum(counts)
    labels = {place: f"≤ {took(1000 * 2**place)}" for place in range(first, last + 1)}
    values = [
        {"wait": labels[place], "batches": counts[place], "share": round(counts[place] / whole, 4)}
        for place in range(first, last + 1)
    ]
    axis = {"labelAngle": -45, "labelOverlap": "greedy"}
    spec = {
        "data": {"values": values},
        "height": 170,
        "mark": {"type": "bar", "color": colour("wait")},
        "encoding": {
            "x": named("wait", "waited for a batch", sort=list(labels.values()), axis=axis),
            "y": measured("batches", "batches", axis={"tickMinStep": 1}),
            "tooltip": tips(("wait", "waited"), ("batches", "batches", ","), ("share", "of the waits", ".1%")),
        },
    }  # fmt: skip
    rows = tuple((labels[place], f"{counts[place]:,}", percent(counts[place] / whole)) for place in labels)
    table = Table(
        f"Waits for {title(loader)}", ("waited", "batches", "share"), rows, numeric=frozenset({1, 2})
    )
    summary = f"Of {whole:,} waits, half were {_median(counts)} or shorter, the longest up to {took(1000 * 2**last)}."
    return Chart(f"slowest-waits-{number}", "How long waits were", summary, spec, table)


def _median(counts: list[int]) -> str:
    left = (sum(counts) + 1) // 2
    for place, count in enumerate(counts):
        left -= count
        if left <= 0:
            return took(1000 * 2**place)
    return took(0)
