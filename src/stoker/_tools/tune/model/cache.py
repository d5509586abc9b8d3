"""Turns the measured parts of samples into the ways to cache them, and a forecast into its gain. Pure."""

from __future__ import annotations

from stoker._runtime.simulation.cache_forecast import (
    CacheCase,
    CacheForecast,
    CacheWay,
    cached_work,
    forecast,
)
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.instruments.sample_parts import SamplePart, SampleParts
from stoker._tools.tune.model.prior import predict

LEAST_GAIN = 0.01
"""Share of the time between two batches. A cache that saves less is not worth a line."""


def cache_forecast(work: Work, host: Host, found: SampleParts, samples: int | None) -> CacheForecast | None:
    """What a cache of the dataset would gain; None where it gains nothing or does not fit.

    The parts were measured beside the workers. So each counts by its share of the sample's time in a worker.
    """
    if not work.rows or not found.sample_ns:
        return None
    sample_ns = (work.typical_ns - work.collate_ns) / work.rows
    scale = sample_ns / found.sample_ns
    facts = CacheCase(samples, sample_ns, None, host.room_bytes, host.copy_bytes_per_s)
    return forecast(facts, [_way(each, scale) for each in found.parts])


def cache_gain(
    found: CacheForecast, setting: Setting, host: Host, work: Work, demand: Demand
) -> float | None:
    """Share of the time between two batches that the cache saves from the second epoch on; None if it is next to nothing."""
    now = predict(setting, host, work, demand).interval_ns
    then = predict(setting, host, cached_work(work, found), demand).interval_ns
    gain = 1 - then / now if now else 0.0
    return gain if gain >= LEAST_GAIN else None


def _way(part: SamplePart, scale: float) -> CacheWay:
    if part.kind == "whole":
        return CacheWay('dataset = stoker.cache(dataset, budget="{budget}")', scale * part.ns, part.nbytes)
    holder, _, name = part.path.rpartition(".")
    if part.kind == "before":
        edit = f'{holder} = stoker.cache({holder}, before="{name}", budget="{{budget}}")'
        return CacheWay(
            edit, scale * part.ns, part.nbytes, "samples as they are before the first random step"
        )
    edit = f'{part.path} = stoker.cached({part.path}, budget="{{budget}}")'
    return CacheWay(edit, scale * part.ns, part.nbytes, f"results of {part.path}")
