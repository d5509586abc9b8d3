"""Measures what a sample cache does to later epochs: JPEGs that are decoded, with and without a random flip.

Each way runs some epochs with two persistent workers. An epoch's rate counts from its first batch, so that the start of workers is
no part of it. The first epoch with a cache fills it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from stoker._record.finding import size
from stoker._tools.demo.act import ActContext, Tell
from stoker._tools.render.section import Chart, Code, Part, Prose, Section, Table
from stoker._tools.report.page import vega

TITLE = "A sample cache"
SECONDS = (4.0, 10.0)

TORCH, STOKER, FLIPPED, WHOLE = "torch", "stoker", "decoded pictures cached", "whole samples cached"
WAYS = (TORCH, STOKER, FLIPPED, WHOLE)
_COLOURS = {TORCH: "torch", STOKER: "stoker", FLIPPED: "series-3", WHOLE: "series-4"}
_WORKERS = 2
_ROW_S = 4e-3
_UNCACHED, _EPOCHS = 2, 3
"""Epochs of the ways without a cache and with one."""
_WHOLE_EPOCHS = 8.0
"""What all ways together take, in epochs without a cache: two and two, one to fill each cache, and the quick ones."""
_START_S = 2.0
"""The trial, starts of workers, and the proof that samples are not random."""
_FEWEST, _MOST = 64, 4096
_TRIAL_S = 0.3
_BUDGET = "1GiB"
_EDIT = """dataset = stoker.cache(dataset, budget="8GiB")                      # if nothing in a sample is random
dataset = stoker.cache(dataset, before="transform", budget="8GiB")  # keeps what is there before the random transforms"""


class Flipping:
    """Samples of another dataset, mirrored at random."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.transform: Callable[[Any], Any] = flip

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.inner[index])


def flip(image: Any) -> Any:
    """Mirror half of the pictures."""
    return image.flip(-1) if random.random() < 0.5 else image


def run(stage: ActContext) -> dict[str, Any]:
    """One loader after the other, on as many samples as there is time for at torch's pace here and now."""
    from stoker._tools.demo.loader_rate import measure_rate

    stage.tell("the pace", 0.0)
    _, inner = _samples(_MOST)
    pace = measure_rate(TORCH, Flipping(inner), _WORKERS, _TRIAL_S).rate
    epoch_s = max(0.1, (stage.budget_s - _START_S) / _WHOLE_EPOCHS)
    return measured(max(_FEWEST, min(_MOST, int(pace * epoch_s))), stage.tell)


def measured(rows: int, tell: Tell) -> dict[str, Any]:
    """All ways on so many samples."""
    what, inner = _samples(rows)
    ways = {}
    for place, name in enumerate(WAYS):
        tell(name, (place + 1) / (len(WAYS) + 1))
        ways[name] = _measured(name, inner)
    return {"what": what, "rows": rows, "row_ms": inner.row_s * 1e3, "workers": _WORKERS, "ways": ways}


def _samples(rows: int) -> tuple[str, Any]:
    """Pillow's JPEGs, or pure Python where Pillow is not installed."""
    from stoker._tools.demo.flavours import Computing, Decoding, FlavourMissing

    try:
        return "JPEGs", Decoding(_ROW_S, rows)
    except FlavourMissing:
        return "rows of pure Python", Computing(_ROW_S, rows)


def _measured(name: str, inner: Any) -> dict[str, Any]:
    """The rates of its epochs, and what its cache did."""
    import stoker
    from stoker._tools.demo.loader_rate import BATCH, loader_of, started

    dataset: Any = inner if name == WHOLE else Flipping(inner)
    if name == WHOLE:
        dataset = stoker.cache(dataset, budget=_BUDGET)
    elif name == FLIPPED:
        dataset = stoker.cache(dataset, before="transform", budget=_BUDGET)
    rates = []
    with loader_of(TORCH if name == TORCH else STOKER, dataset, _WORKERS) as loader:
        for _ in range(_EPOCHS if name in (FLIPPED, WHOLE) else _UNCACHED):
            batches = started(loader)
            next(batches)
            began, count = time.perf_counter(), 0
            for _ in batches:
                count += 1
            rates.append(BATCH * count / (time.perf_counter() - began))
        cache = None if name == TORCH else loader.stats()["cache"]
    return {"rates": rates, "cache": cache}


def usual_rate(told: dict[str, Any]) -> float:
    """Rows a second: of a way with a cache, from the second epoch on."""
    rates = told["rates"]
    return float(median(rates[1:] if told["cache"] else rates))


def lines(result: dict[str, Any]) -> list[str]:
    """What later epochs gain, and what that takes."""
    ways = result["ways"]
    base = usual_rate(ways[TORCH])
    gains = {name: usual_rate(ways[name]) / base for name in WAYS}
    filling = ways[WHOLE]["rates"][0] / usual_rate(ways[STOKER])
    kept = sum((ways[name]["cache"] or {}).get("stored_bytes", 0) for name in (WHOLE,))
    return [
        f"{result['what']}, from epoch 2 on: {gains[WHOLE]:.1f}× torch's rate with samples cached,",
        f"{gains[FLIPPED]:.1f}× with flips anew, {gains[STOKER]:.1f}× without a cache; epoch 1 fills it at {filling:.2f}×",
        f"{size(kept)} hold {result['rows']} samples, once for all workers",
    ]


def sections(result: dict[str, Any]) -> list[Section]:
    """Rates by epoch, what each cache did, and what to write."""
    ways = result["ways"]
    values = [
        {"way": name, "epoch": str(epoch), "rate": round(rate, 2)}
        for name in WAYS
        for epoch, rate in enumerate(ways[name]["rates"], 1)
    ]
    spec = {
        "data": {"values": values},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": vega.named("epoch", "epoch"),
            "y": vega.measured("rate", "samples a second"),
            "color": vega.painted("way", _COLOURS),
            "tooltip": vega.tips(("way", "way"), ("epoch", "epoch"), ("rate", "samples a second", ",.0f")),
        },
    }
    base = usual_rate(ways[TORCH])
    rows = tuple(_row(name, ways[name], base) for name in WAYS)
    table = Table(
        "Samples a second by epoch",
        ("way", "epoch 1", "later", "to torch", "hits", "stored", "workers' time saved"),
        rows,
        numeric=frozenset(range(1, 7)),
    )
    gain = usual_rate(ways[WHOLE]) / base
    summary = f"From the second epoch on, cached samples come {gain:.1f} times as fast as torch's loader makes them."
    parts: tuple[Part, ...] = (
        Prose(
            f"{result['rows']:,} {result['what']} of {result['row_ms']:.1f} ms each and {result['workers']} workers. With a cache, "
            "the first epoch makes every sample, and keeps it in memory that all workers share. Later epochs read it there. "
            "Samples that are mirrored at random are not kept whole: decoded pictures are, and mirrored anew."
        ),
        Chart("cache-chart", "What a sample cache does to later epochs", summary, spec, table),
        Code(_EDIT, "python"),
    )
    return [Section("demo-cache", TITLE, parts)]


def _row(name: str, told: dict[str, Any], base: float) -> tuple[str, ...]:
    use = told["cache"] or {}
    asked = use.get("hits", 0) + use.get("misses", 0)
    return (
        name,
        f"{told['rates'][0]:,.0f}",
        f"{usual_rate(told):,.0f}",
        f"{usual_rate(told) / base:.1f}×",
        f"{use['hits'] / asked:.0%}" if asked else "–",
        size(use["stored_bytes"]) if use else "–",
        f"{use['saved_ns'] / 1e9:.1f} s" if use else "–",
    )
