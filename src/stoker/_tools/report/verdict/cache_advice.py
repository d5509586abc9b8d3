"""Forecasts from a record what a sample cache would gain. Pure.

A record does not say whether samples are random. So the gain is a bound, and ``stoker.cache`` itself has the last word: it
refuses samples that differ between seeds, and names the line to write instead.
"""

from __future__ import annotations

from dataclasses import replace

from stoker._record.finding import Edit, capitalised
from stoker._record.schema import LoaderRecord
from stoker._runtime.simulation.cache_forecast import CacheCase, CacheForecast, CacheWay, forecast
from stoker._tools.report.verdict.case import AdviceCase
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.forecast import Pace, gain_of_pace, pace

_CAUSES = ("io", "compute", "starved", "bandwidth", "gil")
"""Causes that less work per sample changes."""
_WHOLE_EPOCH = 0.9
"""A loader that handed out this share of its samples in its only epoch was asked for one epoch."""
_LEAST_GAIN = 0.01
_EDIT = 'dataset = stoker.cache(dataset, budget="{budget}")'


def sample_cache(case: AdviceCase) -> VerdictFinding | None:
    """The finding with its edit; None where a cache gains nothing, does not fit, is there already, or would be read once."""
    loader = case.loader
    if loader.cache is not None or loader.kind.remote or case.causes.cause not in _CAUSES:
        return None
    now = pace(loader, case.machine, case.causes)
    sample_ns = fetch_ns(loader)
    if now is None or sample_ns is None or loader.sample_bytes is None:
        return None
    facts = CacheCase(
        loader.samples, sample_ns, _epochs(loader, case.world_size), case.machine.available_bytes
    )
    found = forecast(facts, [CacheWay(_EDIT, sample_ns, loader.sample_bytes)])
    if found is None:
        return None
    share = 1.0 - case.causes.share("parent", "start_up", "head_of_line")
    gain = gain_of_pace(now, _cached(now, found, loader), share, f"from the second epoch on; {found.text}")
    if gain.share is None or gain.share < _LEAST_GAIN:
        return None
    return case.finding(
        "sample-cache",
        capitalised(found.text),
        "Cache the samples, if nothing in them is random: otherwise stoker.cache refuses and names the line to write instead.",
        Edit(found.edit, None, loader.site, "cache"),
        replace(gain, at_most=True),
    )


def fetch_ns(loader: LoaderRecord) -> float | None:
    """A worker's mean time to fetch a sample, from the steps that are kept. None: not measured."""
    steps = loader.steps
    columns = [steps.get(name, []) for name in ("rows", "received_ns", "fetched_ns")]
    measured = [
        (rows, end - start) for rows, start, end in zip(*columns, strict=False) if rows and end > start > 0
    ]
    rows = sum(each for each, _ in measured)
    return sum(ns for _, ns in measured) / rows if rows else None


def _epochs(loader: LoaderRecord, world_size: int) -> int | None:
    """How many the run had; None when the first was left before its end, so nobody knows how many it would have."""
    totals = loader.totals
    own = (loader.samples or 0) / max(1, world_size)
    return None if totals.epochs < 2 and totals.rows < _WHOLE_EPOCH * own else totals.epochs


def _cached(now: Pace, found: CacheForecast, loader: LoaderRecord) -> Pace:
    """The pace with less work per batch. What is left of a sample is mostly computing."""
    saved_s = found.saved_ns / 1e9 * loader.totals.rows / max(1, loader.totals.steps)
    left = max(0.0, 1 - saved_s / now.batch_s) if now.batch_s else 1.0
    return replace(now, batch_s=now.batch_s * left, cpu_s=now.cpu_s * left)
