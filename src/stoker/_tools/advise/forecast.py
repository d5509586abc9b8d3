"""Forecasts what other settings of a loader would change, from what was measured: a line for each, with its number or a reason.

Workers and threads come from the replay, a cache from the record, sharing and randomness from the doctor, the device from the
copies that the loop waited for. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker._record.causes.causes import find_causes
from stoker._record.finding import counted, duration, size
from stoker._record.schema import LoaderRecord, RunRecord
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts.growth import GrowthFacts
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.report.verdict.cache_advice import sample_cache
from stoker._tools.report.verdict.case import AdviceCase
from stoker._tools.report.what_if import what_if
from stoker.errors import RecordError

_SHARE = "STK601"
_MOST_THREADS = 16
_WAITS = 0.5
"""Share of a sample's time off the CPU, from which on threads in a worker would help."""
_USUAL = (0, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """``change`` is that of the time between two batches, None where there is no number; ``text`` then says why."""

    subject: str
    """ "workers", "cache", "device", "share" or "threads"."""
    text: str
    change: float | None = None
    interval_ns: float | None = None


def forecast(
    record: RunRecord, name: str, site: str | None, counts: Sequence[int], diagnosis: Diagnosis | None
) -> tuple[ForecastRow, ...]:
    """For one loader; with so many workers, beside the usual numbers. ``diagnosis`` is the doctor's, of this loader."""
    loader = next((each for each in record.loaders if (each.name, each.site) == (name, site)), None)
    if loader is None or not loader.totals.steps:
        return ()
    alone = RunRecord(record.run, record.machine, [loader])
    return (
        *_workers(alone, counts),
        _cache(alone, loader, diagnosis),
        _device(record, loader),
        _share(loader, diagnosis),
        _threads(alone, loader),
    )


def _workers(record: RunRecord, counts: Sequence[int]) -> list[ForecastRow]:
    """What the replay says of other numbers of workers."""
    wanted = sorted({*_USUAL, *counts})
    found, now_ns = _replayed(record, [f"workers={count}" for count in wanted])
    return [
        ForecastRow(
            "workers", f"{counted(each['workers'], 'worker')}: {_pace(each, now_ns)}", *_change(each, now_ns)
        )
        for each in found
    ]


def _threads(record: RunRecord, loader: LoaderRecord) -> ForecastRow:
    metered_ns = sum(each.metered_ns for each in loader.workers)
    waits = sum(each.off_ns for each in loader.workers) / metered_ns if metered_ns else None
    rows = loader.totals.rows // max(1, loader.totals.steps)
    if not loader.kind.processes:
        return ForecastRow("threads", "does not apply: there are no worker processes to have threads")
    if waits is None:
        return ForecastRow(
            "threads", "not known: whether samples wait or compute was not measured in the workers"
        )
    if waits < _WAITS:
        return ForecastRow(
            "threads",
            f"do not apply: samples compute (they wait for {waits:.0%} of their time), and threads of one worker do that in turns",
        )
    threads = min(_MOST_THREADS, rows)
    if threads < 2:
        return ForecastRow("threads", "do not apply: a batch has one sample")
    found, now_ns = _replayed(record, [f"threads={threads}"])
    if not found:
        return ForecastRow("threads", "not known: the record cannot be replayed")
    text = f"{threads} in each worker (threads_per_worker, stoker's loader): {_pace(found[0], now_ns)}"
    return ForecastRow("threads", text, *_change(found[0], now_ns))


def _replayed(record: RunRecord, questions: Sequence[str]) -> tuple[list[dict[str, Any]], float]:
    """The cases, and the time between two batches as it is; no cases where a replay is not possible."""
    try:
        answered = what_if.answer(record, [what_if.parse(each) for each in questions])["loaders"][0]
    except RecordError:
        return [], 0.0
    now_ns = float(answered["replayed"]["interval_ns"])
    return (answered["cases"], now_ns) if now_ns else ([], 0.0)


def _pace(case: dict[str, Any], now_ns: float) -> str:
    took_ns = case["interval_ns"]
    return f"a batch every {duration(took_ns / 1e9)} ({_signed(took_ns / now_ns - 1)})"


def _change(case: dict[str, Any], now_ns: float) -> tuple[float, float]:
    return case["interval_ns"] / now_ns - 1, case["interval_ns"]


def _signed(change: float) -> str:
    return f"{change:+.0%}".replace("-", "−")


def _cache(record: RunRecord, loader: LoaderRecord, diagnosis: Diagnosis | None) -> ForecastRow:
    use = loader.cache
    if use is not None:
        share = "" if use.hit_share is None else f": {use.hit_share:.0%} of samples came from it"
        return ForecastRow("cache", f"there is one{share}")
    randomness = None if diagnosis is None else diagnosis.facts.get("randomness")
    if isinstance(randomness, RandomnessFacts) and (randomness.varies or randomness.frozen):
        return ForecastRow("cache", "does not apply: samples differ each time they are made")
    case = AdviceCase(loader, record.machine, find_causes(loader, record.machine), record.run.world_size)
    found = sample_cache(case)
    if found is None or found.gain is None or found.gain.share is None:
        return ForecastRow("cache", _no_cache(loader, record))
    sure = "" if isinstance(randomness, RandomnessFacts) else ", if samples are the same each time"
    return ForecastRow(
        "cache",
        f"at most {_signed(-found.gain.share)}{sure}: {found.evidence[:1].lower()}{found.evidence[1:]}",
        -found.gain.share,
    )


def _no_cache(loader: LoaderRecord, record: RunRecord) -> str:
    """Why none is forecast."""
    totals, room = loader.totals, record.machine.available_bytes
    if loader.samples is None or loader.sample_bytes is None:
        return "not known: the number of samples or their size was not measured"
    need = loader.samples * loader.sample_bytes
    if room is not None and need > room:
        return f"does not apply: all samples take {size(need)}, and {size(room)} of memory are left"
    if totals.epochs < 2 and totals.rows >= loader.samples // max(1, record.run.world_size):
        return "no gain in this run: it had one epoch, and a cache gains from the second one on"
    return "no gain is seen: the making of samples does not set the pace, or the workers are not always busy"


def _device(record: RunRecord, loader: LoaderRecord) -> ForecastRow:
    totals = loader.totals
    exposed_ns = sum(each.ns for each in loader.blame if each.stage in ("copy", "pin"))
    whole_ns = totals.wait_ns + totals.step_ns
    if exposed_ns and whole_ns:
        share = exposed_ns / whole_ns
        text = (
            f"copies and pinning that the loop waits for take {share:.1%} of the time, {duration(exposed_ns / 1e9)}: hidden "
            "behind the steps they would save at most that"
        )
        return ForecastRow("device", text, -share)
    if totals.copied_ns:
        return ForecastRow("device", "nothing to gain: all copies were hidden behind the steps")
    if not record.machine.accelerators:
        return ForecastRow("device", "does not apply: no accelerator was used")
    return ForecastRow(
        "device",
        "not known: the script copies batches itself; stoker doctor --device auto measures the way there",
    )


def _share(loader: LoaderRecord, diagnosis: Diagnosis | None) -> ForecastRow:
    """How many bytes workers copy of what the dataset holds."""
    if not loader.kind.processes:
        return ForecastRow("share", "does not apply: without worker processes there is one copy")
    if diagnosis is None:
        return ForecastRow("share", "not known: the doctor has not examined this loader")
    found = next((each for each in diagnosis.findings if each.code == _SHARE), None)
    if found is not None:
        copied = int(found.numbers.get("total_bytes") or 0)
        return ForecastRow(
            "share", f"stoker.share(dataset) saves {size(copied)}, which the workers copy in an epoch"
        )
    growth = diagnosis.facts.get("growth")
    if isinstance(growth, GrowthFacts):
        samples = counted(growth.warm_up + growth.samples, "sample")
        text = f"nothing to gain: a worker copied {size(growth.copied_bytes)} of the script's memory over {samples}"
        return ForecastRow("share", text)
    reason = next((each.reason for each in diagnosis.skipped if each.code == _SHARE), "it was not measured")
    return ForecastRow("share", f"not known: {reason}")
