"""Computes the scaling curve of a run or a tuning: measured points, replayed points, and limits. Pure.

A run has one point that was measured, its own; others are replayed from the times of its batches. A tuning has measured several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stoker._record.schema import LoaderRecord, Machine
from stoker._runtime.simulation import limits
from stoker._runtime.simulation.predictions import SimulationCase
from stoker._runtime.simulation.scaling_law import KNEE
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.report.page.material import ReportedRun
from stoker._tools.report.page.terms import loaders, number
from stoker._tools.report.what_if.recorded_work import recall
from stoker.arguments import DEFAULT_EXECUTOR
from stoker.errors import RecordError

_COUNTS = (
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
)  # fmt: skip
_REACH = 2
"""How far beyond the last number of workers that is of interest the curve goes."""
_BLOCKS, _BLOCK = 8, 64
"""Stretches of batches that stand for thousands of them, and their length: a replay goes through as many."""
_WORKERS = re.compile(r"\bnum_workers=(\d{1,4})\b")


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a replay says of a number of workers."""

    workers: int
    per_s: float
    stall: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What so many workers did. ``low`` and ``high`` hold it with 90 %; None: it is one run."""

    workers: int
    per_s: float
    low_per_s: float | None
    high_per_s: float | None
    stall: float
    kind: str = "measured"
    """ "measured", "as it was", "recommended"."""
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """Batches do not come faster than this, whatever the workers do."""

    name: str
    per_s: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Everything in samples a second."""

    label: str
    measured: tuple[Measured, ...]
    predicted: tuple[Predicted, ...]
    bounds: tuple[Bound, ...]
    """The tightest first. "step" is the ceiling: what the training loop would take if data took no time."""
    now: int
    wanted: int | None
    """What is recommended, where that is another number."""
    knee: int | None
    reason: str
    """What binds at the knee."""
    error: float | None
    """How far the replay is off where it can be held against a measurement; above 0, it took less time than was said."""
    replayed: int
    """Batches that were gone through."""
    notes: tuple[str, ...] = ()
    tuned: bool = False
    engine: str = "stoker"

    @property
    def ceiling(self) -> Bound | None:
        """What the training step allows; None: nothing is known of it."""
        return next((each for each in self.bounds if each.name == "step"), None)


def of_run(run: ReportedRun) -> Curve | None:
    """Return the curve of the loader that costs most. None when it made no batches that could be replayed."""
    for loader, verdict in loaders(run):
        edits = [each.edit.after for each in verdict.findings if each.edit is not None]
        wanted = next((int(found[1]) for each in edits if (found := _WORKERS.search(each))), None)
        curve = _recalled(run.label, loader, run.record.machine, wanted)
        if curve is not None and _drawable(curve):
            return curve
    return None


def _recalled(label: str, loader: LoaderRecord, machine: Machine, wanted: int | None) -> Curve | None:
    try:
        found = recall(loader, machine)
    except RecordError:
        return None  # the lanes say so
    if found is None or found.interval_ns <= 0 or not any(found.work.batch_ns):
        return None
    work = _thinned(found.work)
    now = found.case.setting.workers
    measured = Measured(now, _per_s(work, found.interval_ns), None, None, found.stall, "as it was")
    replayed_ns = found.case.answer(work).interval_ns
    notes = (*found.notes, *_whole_run(loader, measured))
    host = Host(
        cpus=found.case.cpus,
        machine_cpus=machine.cpus or 1,
        ranks=machine.local_ranks,
        room_bytes=machine.available_bytes,
        descriptors=machine.descriptors,
    )
    return _curve(
        label, work, found.case, host, (measured,), now, wanted,
        error=replayed_ns / found.interval_ns - 1.0, notes=notes,
    )  # fmt: skip


def _whole_run(loader: LoaderRecord, measured: Measured) -> tuple[str, ...]:
    """What the point leaves out, where that is much."""
    totals = loader.totals
    whole_ns = totals.wait_ns + totals.step_ns
    per_s = totals.rows * 1e9 / whole_ns if whole_ns > 0 else 0.0
    if not per_s or measured.per_s <= (1 + KNEE) * per_s:
        return ()
    told = "The run as it was is without the starts of epochs and what recording took"
    return (f"{told}: all in all it is {number(per_s)} samples a second.",)


def of_tuning(told: Mapping[str, Any], label: str) -> Curve | None:
    """Return the curve of what ``stoker tune --json`` wrote. None when nothing in it was measured, or it is damaged."""
    try:
        curve = _tuned(told, label)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None
    return None if curve is None or not _drawable(curve) else curve


def _drawable(curve: Curve) -> bool:
    """Whether all its numbers are some."""
    found: list[float | None] = [curve.error]
    for measured in curve.measured:
        found += [measured.per_s, measured.low_per_s, measured.high_per_s, measured.stall]
    for predicted in curve.predicted:
        found += [predicted.per_s, predicted.stall]
    found += [each.per_s for each in curve.bounds]
    return all(each is None or math.isfinite(each) for each in found)


def _tuned(told: Mapping[str, Any], label: str) -> Curve | None:
    work, host, demand = (
        _made(kind, told[name]) for kind, name in ((Work, "work"), (Host, "host"), (Demand, "demand"))
    )
    settings = {name: Setting.from_dict(told["settings"][name]) for name in ("baseline", "recommended")}
    points = [each for each in told["points"] if not each["failure"] and each["blocks"]]
    found = tuple(_measured(each, work, settings) for each in points)
    if not found or not any(work.batch_ns):
        return None
    off = sorted(
        each["predicted_ns"] / each["interval_ns"]["middle"] - 1.0
        for each in points
        if each.get("predicted_ns")
    )
    kept = settings["recommended"]
    curve = _curve(
        label, _thinned(work), SimulationCase(kept, host.cpus, demand), host, found, settings["baseline"].workers, kept.workers,
        error=off[len(off) // 2] if off else None, notes=(),
    )  # fmt: skip
    return replace(curve, tuned=True)


def _measured(point: Mapping[str, Any], work: Work, settings: Mapping[str, Setting]) -> Measured:
    interval, setting = point["interval_ns"], Setting.from_dict(point["setting"])
    kinds = {"recommended": "recommended", "baseline": "as it was"}
    kind = next((kinds[name] for name in kinds if settings[name] == setting), "measured")
    arguments = ", ".join(f"{name}={value!r}" for name, value in setting.arguments().items())
    return Measured(
        setting.workers,
        _per_s(work, interval["middle"]),
        _per_s(work, interval["high"]),
        _per_s(work, interval["low"]),
        float(point["stall"]),
        kind,
        arguments if setting.engine == "stoker" else f"torch: {arguments}",
    )


def _made(kind: Any, told: Any) -> Any:
    """One of the tuner's dataclasses, lists as tuples; names that are not known are left out."""
    names = kind.__dataclass_fields__
    values = {
        name: tuple(map(int, each)) if name.endswith("_ns") and isinstance(each, list) else each
        for name, each in told.items()
        if name in names
    }
    return kind(**values)


def _curve(
    label: str,
    work: Work,
    case: SimulationCase,
    host: Host,
    measured: tuple[Measured, ...],
    now: int,
    wanted: int | None,
    *,
    error: float | None,
    notes: tuple[str, ...],
) -> Curve:
    useful = [each for each in (limits.knee(work, host, case.demand), limits.need(work, case.demand)) if each]
    known = {now, *(each.workers for each in measured), *([] if wanted is None else [wanted])}
    reach = min(
        max([4, *(_REACH * each for each in known), *(_REACH * min(useful) for _ in useful[:1])]), _COUNTS[-1]
    )
    counts = sorted(known | {each for each in _COUNTS if each <= reach})
    predicted = tuple(_predicted(case, work, each) for each in counts)
    knee = _knee(predicted)
    binding = limits.limits(work, host, case.demand, workers=knee or 1)
    bounds = tuple(
        Bound(each.name, _per_s(work, each.interval_ns), each.sentence)
        for each in binding
        if each.name != "workers" and each.interval_ns > 0
    )
    return Curve(
        label, measured, predicted, bounds, now, wanted if wanted != now else None, knee,
        binding[0].sentence if binding else "", error, len(work.batch_ns), notes, engine=case.setting.engine,
    )  # fmt: skip


def _predicted(case: SimulationCase, work: Work, workers: int) -> Predicted:
    setting = case.setting
    if workers != setting.workers:
        executor = setting.executor if setting.kind.workers else DEFAULT_EXECUTOR
        setting = replace(setting, workers=workers, executor=executor, prefetch=setting.prefetch or 2)
        case = replace(case, setting=setting, window=0)
    found = case.answer(work)
    return Predicted(workers, _per_s(work, found.interval_ns), found.stall)


def _knee(points: Iterable[Predicted]) -> int | None:
    """The least number of workers, one at least, that is within 5 % of the best."""
    workers = [each for each in points if each.workers]
    best = max((each.per_s for each in workers), default=0.0)
    return next((each.workers for each in workers if best and each.per_s * (1 + KNEE) >= best), None)


def _per_s(work: Work, interval_ns: float) -> float:
    return work.rows * 1e9 / interval_ns if interval_ns > 0 else 0.0


def _thinned(work: Work) -> Work:
    """Some stretches of it, from all over the run: batches that follow each other stay together."""
    count = len(work.batch_ns)
    if count <= _BLOCKS * _BLOCK:
        return work
    starts = [(count - _BLOCK) * place // (_BLOCKS - 1) for place in range(_BLOCKS)]
    columns: dict[str, Any] = {}
    for name in ("batch_ns", "cpu_ns", "slow_ns", "queued_ns"):
        column = getattr(work, name)
        if len(column) == count:
            columns[name] = tuple(each for start in starts for each in column[start : start + _BLOCK])
    return replace(work, **columns)
