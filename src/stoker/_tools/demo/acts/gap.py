"""Measures the time between two epochs: from the end of the last step until the first batch of the next epoch.

Without persistent workers torch ends all its workers there and starts others; with them, they still begin from nothing. Ways are
measured in turns.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from stoker._tools.demo.act import ActContext
from stoker._tools.render.section import Chart, Code, Prose, Section, Table
from stoker._tools.report.page import vega

TITLE = "Epoch gap"
SECONDS = (2.0, 8.0)

_WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("torch", {"persistent_workers": False}),
    "torch, persistent": ("torch", {"persistent_workers": True}),
    "stoker": ("stoker", {"persistent_workers": False}),
    "stoker, persistent": ("stoker", {"persistent_workers": True}),
    "stoker, prefetch_epochs": ("stoker", {"persistent_workers": True, "prefetch_epochs": True}),
}
"""By name: the loader, and what it is given."""
_WORKERS, _BATCHES, _EPOCHS = 2, 8, 3
_ROW_S, _STEP_S = 1e-3, 5e-3
_MOST_ROUNDS = 8
_EDIT = """loader = DataLoader(dataset, num_workers=8, persistent_workers=True)  # torch's and stoker's
loader = DataLoader(dataset, num_workers=8, persistent_workers=True, prefetch_epochs=True)  # stoker's"""


def run(stage: ActContext) -> dict[str, Any]:
    """Rounds as the budget allows, at least one."""
    from stoker._tools.demo.flavours import Sleeping
    from stoker._tools.demo.loader_rate import BATCH

    dataset = Sleeping(_ROW_S, _BATCHES * BATCH)
    gaps_ms: dict[str, list[float]] = {name: [] for name in _WAYS}
    began, rounds = time.monotonic(), 0
    while rounds < _MOST_ROUNDS:
        spent_s = time.monotonic() - began
        if rounds and spent_s * (rounds + 1) / rounds > stage.budget_s:
            break
        for place, (name, (kind, given)) in enumerate(_WAYS.items()):
            share = (rounds + place / len(_WAYS)) / (rounds + 1)
            stage.tell(name, max(share * 0.5, (time.monotonic() - began) / stage.budget_s))
            gaps_ms[name] += _gaps_ms(kind, dataset, given)
        rounds += 1
    return {"workers": _WORKERS, "batch": BATCH, "row_ms": _ROW_S * 1e3, "rounds": rounds, "gaps_ms": gaps_ms}


def lines(result: dict[str, Any]) -> list[str]:
    """Every way's median."""
    found = {name: median(each) for name, each in result["gaps_ms"].items() if each}
    return [f"{kind:7}{', '.join(_ways(kind, found))}" for kind in ("torch", "stoker")]


def _ways(kind: str, medians: dict[str, float]) -> list[str]:
    """The medians of one loader, each with what it was given."""
    own = [(name.partition(", ")[2], ms) for name, ms in medians.items() if name.partition(",")[0] == kind]
    return [f"{how} {ms:.0f} ms".strip() if ms >= 20 else f"{how} {ms:.1f} ms".strip() for how, ms in own]


def sections(result: dict[str, Any]) -> list[Section]:
    """A bar for every way, and what to write."""
    found = {name: each for name, each in result["gaps_ms"].items() if each}
    order = list(found)
    values = [
        {
            "way": name,
            "loader": name.split(",")[0],
            "ms": round(median(each), 3),
            "low": round(min(each), 3),
            "high": round(max(each), 3),
            "gaps": len(each),
        }
        for name, each in found.items()
    ]
    y = vega.named("way", sort=order, axis={"labelLimit": 220})
    title = "ms between two epochs"
    told = vega.tips(
        ("way", "way"), ("ms", "median, ms", ",.1f"), ("low", "shortest, ms", ",.1f"), ("high", "longest, ms", ",.1f"),
        ("gaps", "gaps measured"),
    )  # fmt: skip
    bars = {
        "y": y,
        "x": vega.measured("ms", title),
        "color": vega.painted("loader", {"torch": "torch", "stoker": "stoker"}, legend=None),
        "tooltip": told,
    }
    reach = {"y": y, "x": vega.measured("low", title), "x2": {"field": "high"}}
    spec = {
        "data": {"values": values},
        "layer": [{"mark": "bar", "encoding": bars}, {"mark": {"type": "rule"}, "encoding": reach}],
    }
    table = Table(
        "Milliseconds between two epochs",
        ("way", "median", "shortest", "longest", "gaps"),
        tuple(
            (each["way"], f"{each['ms']:.1f}", f"{each['low']:.1f}", f"{each['high']:.1f}", str(each["gaps"]))
            for each in values
        ),
        numeric=frozenset({1, 2, 3, 4}),
    )
    shortest = min(values, key=lambda each: each["ms"])
    summary = f"The gap is shortest with {shortest['way']}: {shortest['ms']:.1f} ms; see the table for all."
    text = (
        f"From the end of the last step of an epoch to the first batch of the next: {result['workers']} workers, batches of"
        f" {result['batch']} rows of {result['row_ms']:.0f} ms, so that no way can be below zero, and one that begins from nothing"
        f" takes at least {result['batch'] * result['row_ms'] / result['workers']:.0f} ms. Bars are medians, lines reach from the"
        " shortest to the longest."
    )
    chart = Chart("gap-chart", "The time between two epochs", summary, spec, table)
    return [Section("gap", "Between epochs", (Prose(text), chart, Code(_EDIT, "python")))]


def _gaps_ms(kind: str, dataset: Any, given: dict[str, Any]) -> list[float]:
    """Return the gaps between one loader's epochs."""
    from stoker._tools.demo.loader_rate import loader_of

    found: list[float] = []
    with loader_of(kind, dataset, _WORKERS, **given) as loader:
        used = None
        for _ in range(_EPOCHS):
            for _ in loader:
                if used is not None:
                    found.append((time.perf_counter() - used) * 1e3)
                    used = None
                time.sleep(_STEP_S)
            used = time.perf_counter()
    return found
