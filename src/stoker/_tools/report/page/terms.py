"""Names causes, stages and runs in a report, and gives each its colour in every chart. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stoker._record import finding
from stoker._record.finding import Gain, capitalised, duration
from stoker._record.schema import LoaderRecord
from stoker._tools.render.section import Part, side_by_side
from stoker._tools.render.theme import SERIES, colour
from stoker._tools.report.page.material import ReportedRun
from stoker._tools.report.verdict import reasons
from stoker._tools.report.verdict.table import RECORDING
from stoker._tools.report.verdict.verdict import LoaderVerdict

TRAINING = "training"

PARTS = {
    TRAINING: "train",
    "io": "series-1",
    "compute": "series-2",
    "head-of-line": "series-4",
    "starved": "series-8",
    "gil": "series-6",
    "bandwidth": "limit",
    "parent": "series-5",
    "start-up": "series-7",
    "unknown": "quiet",
    RECORDING: "quiet",
}
"""Of a step's time, in the order in which they are stacked, with their colours."""

DOING = {
    "training": "train",
    "waiting for data": "wait",
    "fetch": "series-1",
    "collate": "series-6",
    "hand-over": "series-5",
    "ready, held by order": "series-4",
    "ready ahead of time": "quiet",
}
"""What the training loop and the workers do, and what happens to batches between them."""

MEANS = {
    TRAINING: "what the training loop did between batches",
    RECORDING: "making this record",
    **{name.replace("_", "-"): text for name, text in reasons.NAMES.items()},
}
_LONGEST = 48
_LEAST_PERCENT = 0.0005


def scale(names: Iterable[str], colours: Mapping[str, str] = PARTS) -> dict[str, Any]:
    """For a ``color`` encoding: these names, in the order and colours that they always have. Others come last, in grey."""
    given = set(names)
    known = [name for name in colours if name in given]
    others = sorted(given - set(known))
    shades = [colours[name] for name in known] + ["quiet"] * len(others)
    return {"domain": known + others, "range": [colour(each) for each in shades]}


def of_runs(labels: Sequence[str], engines: Sequence[str]) -> dict[str, str]:
    """Colours of runs: those of the loaders where one run is torch's and one stoker's, else the series'."""
    if sorted(engines) == ["stoker", "torch"]:
        return dict(zip(labels, engines, strict=True))
    return {label: SERIES[place % len(SERIES)] for place, label in enumerate(labels)}


def order(name: str) -> int:
    """Its place in a stack."""
    return list(PARTS).index(name) if name in PARTS else len(PARTS)


def loaders(run: ReportedRun) -> list[tuple[LoaderRecord, LoaderVerdict]]:
    """A run's loaders with what is said of them, the one that costs most first."""
    left = list(run.record.loaders)
    found = []
    for verdict in run.verdict.loaders:
        for loader in left:
            if _key(loader) == _verdict_key(verdict):
                left = [each for each in left if each is not loader]
                found.append((loader, verdict))
                break
    return found


def by_run(
    runs: Iterable[ReportedRun], parts_of: Callable[[LoaderRecord, LoaderVerdict, int], Iterable[Part | None]]
) -> tuple[Part, ...]:
    """What ``parts_of`` makes of each run's loader that costs most, and of the run's number. Runs stand side by side."""
    return side_by_side(
        (
            run.label,
            [part for pair in loaders(run)[:1] for part in parts_of(*pair, number) if part is not None],
        )
        for number, run in enumerate(runs)
    )


def title(loader: LoaderRecord) -> str:
    """The loader as one would point at it, in a few words."""
    return cut(reasons.title(loader))


def sentence(text: str) -> str:
    """What was measured, as a sentence of its own."""
    text = text.strip()
    return f"{capitalised(text)}{'' if text.endswith(('.', ':', '!', '?')) or not text else '.'}"


def edited(after: str, before: str | None, site: str | None) -> str:
    """A change as something to copy: what is to be typed, below where and in place of what."""
    if not after:
        return f"# {f'{site}: ' if site else ''}leave out\n{before or ''}"
    where = (
        f"{site}: {before} becomes"
        if site and before
        else f"in place of {before}"
        if before
        else f"{site}:"
        if site
        else ""
    )
    return f"# {where}\n{after}" if where else after


def gained(gain: Gain | None) -> str | None:
    """What a change would save, and from what that is known."""
    if gain is None:
        return None
    return f"{'not known' if gain.share is None else gain} ({gain.how})"


def cut(text: str, longest: int = _LONGEST) -> str:
    """In one line that fits into a label."""
    return finding.cut(" ".join(text.split()), longest)


def ms(ns: int | float) -> float:
    """For a chart: enough digits to draw."""
    return round(ns / 1e6, 4)


def took(ns: int | float | None) -> str:
    """A time as one reads it; "not measured" for None."""
    return "not measured" if ns is None else duration(ns / 1e9)


def percent(share: float | None) -> str:
    """ "4.2 %", "54 %"."""
    if share is None or not math.isfinite(share):
        return "not measured"
    if 0 < share < _LEAST_PERCENT:
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.0995 else f"{share:.0%}".replace("%", " %")


def number(value: float | None) -> str:
    """ "392", "2.9k", "41"."""
    if value is None or not math.isfinite(value):
        return "not measured"
    return f"{value / 1000:,.1f}k" if value >= 10_000 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _key(loader: LoaderRecord) -> tuple[Any, ...]:
    totals = loader.totals
    named = (loader.name, loader.site, loader.engine, loader.executor, loader.dataset)
    return (*named, totals.steps, totals.epochs, totals.step_ns)


def _verdict_key(verdict: LoaderVerdict) -> tuple[Any, ...]:
    named = (verdict.name, verdict.site, verdict.engine, verdict.executor, verdict.dataset)
    return (*named, verdict.steps, verdict.epochs, verdict.causes.step_ns)
