"""Computes what running loaders do now from two scans a moment apart. Pure.

The page's own sums of the last seconds are brought up to now: its writer does not write while it waits, and a wait that is
under way is the one that matters most. Such a wait is laid on the worker that has the oldest batch, by what its CPU does.
Unknown values are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from stoker._record.causes.thresholds import NOT_DATA
from stoker._record.run_page.summary import RECENT_NS, Blamed, CacheSums, LastEvent, SlowSample, Summary, Sums
from stoker._tools.render.loader_names import NamedLoader, distinct
from stoker._tools.top.processes import LoaderSeen, PoolSeen, ProcessScan, WorkerSeen
from stoker.arguments import executor_kind

FORMAT = "stoker-top"
VERSION = 1


@dataclass(slots=True)
class WorkerLive:
    """One worker. ``for_s``: how long on its task. ``awaited``: the consumer waits, and this one has the oldest batch.

    ``busy`` is its share of the time since the last scan, and ``cpu``, ``runq`` and ``off`` are shares of that.
    """

    worker: int
    pid: int
    phase: str
    index: int | None = None
    batch: int | None = None
    row: int | None = None
    for_s: float | None = None
    awaited: bool = False
    stale: bool = False
    """At work for an epoch that is over."""
    busy: float | None = None
    cpu: float | None = None
    runq: float | None = None
    off: float | None = None
    tasks: int | None = None
    resident_bytes: int | None = None


@dataclass(slots=True)
class LoaderLive:
    """One loader. Without ``_whole`` a figure is about the last ten seconds. ``cause`` is a word of ``record.CAUSES``."""

    pid: int
    command: str
    recorded: bool
    name: str | None = None
    dataset: str | None = None
    engine: str | None = None
    executor: str | None = None
    site: str | None = None
    sampler: str | None = None
    rank: int = 0
    world_size: int = 1
    waiting_s: float | None = None
    """How long the consumer has been waiting now; None: it does not."""
    idle_s: float | None = None
    """How long ago it was given its last batch, while it does not wait."""
    stall: float | None = None
    stall_whole: float | None = None
    ready: float | None = None
    ready_whole: float | None = None
    rate: float | None = None
    """Batches per second."""
    rows_rate: float | None = None
    num_workers: int | None = None
    busy: float | None = None
    cpu: float | None = None
    runq: float | None = None
    off: float | None = None
    window: int | None = None
    depth: int | None = None
    undelivered_bytes: int | None = None
    epochs: int | None = None
    steps: int | None = None
    cause: str | None = None
    causes: dict[str, float] = field(default_factory=dict)
    """Shares of the wait."""
    blame: list[Blamed] = field(default_factory=list)
    """The largest parts of the whole run's wait."""
    restarts: int | None = None
    stalls: int | None = None
    bad_samples: int | None = None
    slowest: list[SlowSample] = field(default_factory=list)
    cache: CacheSums | None = None
    """What sample caches did over the whole run; None: none is used, or its stoker does not tell."""
    event: LastEvent | None = None
    event_ago_s: float | None = None
    workers: list[WorkerLive] = field(default_factory=list)


def live(now: ProcessScan, before: ProcessScan | None = None) -> list[LoaderLive]:
    """All loaders of a scan; shares of workers need one before it."""
    known = {seen.key: seen for seen in before.loaders} if before is not None else {}
    span_ns = now.at_ns - before.at_ns if before is not None else 0
    found = [_loader(seen, known.get(seen.key), now.at_ns, span_ns) for seen in now.loaders]
    _tell_apart(found)
    return found


def _tell_apart(loaders: list[LoaderLive]) -> None:
    """By the names that a report gives them."""
    named = [each for each in loaders if each.name is not None]
    keys = [
        NamedLoader(str(each.name), str(each.dataset), str(each.site), str(each.sampler or ""), each.pid)
        for each in named  # of pages that other processes wrote
    ]
    for each, name in zip(named, distinct(keys), strict=True):
        each.name = name


def document(loaders: list[LoaderLive], skipped: tuple[str, ...], *, at_unix_s: float) -> dict[str, Any]:
    """The JSON form of one moment."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "at_unix_s": at_unix_s,
        "loaders": [asdict(loader) for loader in loaders],
        "skipped": list(skipped),
    }


def _loader(seen: LoaderSeen, before: LoaderSeen | None, at_ns: int, span_ns: int) -> LoaderLive:
    told = LoaderLive(seen.pid, seen.command, seen.reading is not None)
    old = (
        {(worker.worker, worker.pid): worker for pool in before.pools for worker in pool.workers}
        if before
        else {}
    )
    told.workers = [
        _worker(worker, old.get((worker.worker, worker.pid)), pool, at_ns, span_ns)
        for pool in seen.pools
        for worker in pool.workers
    ]
    told.num_workers = len(told.workers)
    reading = seen.reading
    if reading is not None:
        told.steps = reading.steps
        if reading.asked_ns:
            told.waiting_s = max(0, at_ns - reading.asked_ns) / 1e9
            _find_awaited(told.workers)
        elif reading.given_ns:
            told.idle_s = max(0, at_ns - reading.given_ns) / 1e9
        if reading.summary is not None:
            with suppress(KeyError, TypeError, ValueError):  # it is another process' word: what fits is shown
                _describe(told, reading.summary, at_ns)
                inline = _inline(seen, before, span_ns)
                _measure(told, reading.summary, reading.steps, reading.asked_ns, at_ns, inline)
    _sum_up_workers(told)
    return told


def _describe(told: LoaderLive, summary: Summary, at_ns: int) -> None:
    for name in (
        "name", "dataset", "engine", "executor", "site", "sampler", "rank", "world_size", "window", "depth", "undelivered_bytes",
        "epochs", "blame", "restarts", "stalls", "bad_samples", "slowest", "event",
    ):  # fmt: skip
        setattr(told, name, summary.get(name, getattr(told, name)))
    told.num_workers = summary.get("workers", told.num_workers)
    cache = summary.get("cache")
    if cache is not None:
        told.cache = CacheSums(**{name: int(cache[name]) for name in CacheSums.__annotations__})  # type: ignore[typeddict-item,literal-required]
    if told.event is not None:
        told.event_ago_s = max(0, at_ns - told.event["at_ns"]) / 1e9


def _measure(
    told: LoaderLive, summary: Summary, steps: int, asked_ns: int, at_ns: int, inline: Mapping[str, float]
) -> None:
    """Shares and rates of the last seconds up to now: what the page says of them, and what came after it."""
    recent, whole = summary["recent"], summary["whole"]
    late_ns = max(0, at_ns - summary["at_ns"])
    waiting_ns = at_ns - max(asked_ns, summary["at_ns"]) if asked_ns else 0
    # Of what the page calls recent, this much still is.
    weight = min(1.0, max(0, RECENT_NS - late_ns) / recent["ns"]) if recent["ns"] else 0.0
    new_steps = max(0, steps - whole["steps"])
    wait_ns = recent["wait_ns"] * weight + waiting_ns
    step_ns = recent["step_ns"] * weight + late_ns - waiting_ns
    ns = recent["ns"] * weight + late_ns
    told.stall_whole = _ratio(whole["wait_ns"] + waiting_ns, whole["wait_ns"] + waiting_ns + whole["step_ns"])
    told.ready_whole = _ratio(whole["ready"], whole["steps"])
    if told.idle_s is not None and told.idle_s * 1e9 >= RECENT_NS:
        return  # nobody asks for batches: nothing recent is left to tell
    told.stall = _ratio(wait_ns, wait_ns + step_ns)
    told.ready = _ratio(recent["ready"], recent["steps"])
    told.rate = _ratio(1e9 * (recent["steps"] * weight + new_steps), ns)
    told.rows_rate = None if told.rate is None else _ratio(told.rate * recent["rows"], recent["steps"])
    told.busy = _ratio(recent["busy_ns"], recent["ns"] * (told.num_workers or 0))
    told.cpu, told.runq, told.off = _shares(recent)
    causes = {cause: ns * weight for cause, ns in recent["causes"].items()}
    for cause, share in (inline or _now(told.workers)).items():
        causes[cause] = causes.get(cause, 0.0) + share * waiting_ns
    total = sum(causes.values())
    ranked = sorted(causes.items(), key=lambda item: -item[1])
    told.causes = {cause: round(ns / total, 4) for cause, ns in ranked if ns > 0} if total else {}
    if told.stall is not None and told.stall >= NOT_DATA:
        told.cause = next(iter(told.causes), None)


def _shares(sums: Sums) -> tuple[float | None, float | None, float | None]:
    cpu, runq, off = sums["cpu_ns"], sums["runq_ns"], sums["off_ns"]
    if cpu is None or runq is None or off is None or not cpu + runq + off:
        return None, None, None
    total = cpu + runq + off
    return cpu / total, runq / total, off / total


def _now(workers: list[WorkerLive]) -> Mapping[str, float]:
    """What a wait that is under way comes from: the shares of the awaited worker's time."""
    for worker in workers:
        if worker.awaited and worker.cpu is not None and worker.runq is not None and worker.off is not None:
            return {"compute": worker.cpu, "starved": worker.runq, "io": worker.off}
    return {"unknown": 1.0}


def _inline(seen: LoaderSeen, before: LoaderSeen | None, span_ns: int) -> Mapping[str, float]:
    """The same where the consumer makes the batch itself: its own shares."""
    now, then = seen.reading, before.reading if before is not None else None
    if now is None or then is None or now.summary is None or executor_kind(now.summary["executor"]).workers:
        return {}
    if (
        before is None
        or seen.meter is None
        or before.meter is None
        or now.asked_ns != then.asked_ns
        or span_ns <= 0
    ):
        return {}
    cpu = min(1.0, (seen.meter.cpu_ns - before.meter.cpu_ns) / span_ns)
    runq = min(1.0 - cpu, (seen.meter.runq_ns - before.meter.runq_ns) / span_ns)
    return {"compute": cpu, "starved": runq, "io": 1.0 - cpu - runq}


def _worker(
    seen: WorkerSeen, before: WorkerSeen | None, pool: PoolSeen, at_ns: int, span_ns: int
) -> WorkerLive:
    told = WorkerLive(
        seen.worker, seen.pid, seen.phase, tasks=seen.tasks, resident_bytes=seen.resident_bytes or None
    )
    if seen.phase != "idle":
        told.index, told.batch, told.row = seen.index, seen.seq, seen.row
        told.for_s = max(0, at_ns - seen.since_ns) / 1e9
        told.stale = seen.epoch != pool.epoch
    if before is None or span_ns <= 0:
        return told
    busy_ns = _busy_ns(seen, before, at_ns, span_ns)
    if busy_ns is not None:
        told.busy = busy_ns / span_ns
    if seen.meter is not None and before.meter is not None and busy_ns:
        cpu_ns = seen.meter.cpu_ns - before.meter.cpu_ns
        runq_ns = seen.meter.runq_ns - before.meter.runq_ns
        busy_ns = max(busy_ns, cpu_ns + runq_ns)
        told.cpu, told.runq = cpu_ns / busy_ns, runq_ns / busy_ns
        told.off = 1 - told.cpu - told.runq
    return told


def _busy_ns(seen: WorkerSeen, before: WorkerSeen, at_ns: int, span_ns: int) -> int | None:
    """How long of the span it was at work. The worker's own sum ends with its last task: this one is under way."""
    if seen.busy_ns is None or before.busy_ns is None:
        if seen.phase != "idle" and at_ns - seen.since_ns >= span_ns:
            return span_ns
        return None
    under_way_ns = at_ns - seen.since_ns if seen.phase != "idle" else 0
    was_ns = at_ns - span_ns - before.since_ns if before.phase != "idle" else 0
    return min(span_ns, max(0, seen.busy_ns + under_way_ns - before.busy_ns - was_ns))


def _find_awaited(workers: list[WorkerLive]) -> None:
    """Mark who has the oldest batch of the epoch."""
    at_work = [worker for worker in workers if worker.phase != "idle" and not worker.stale]
    if at_work:
        oldest = min(worker.batch or 0 for worker in at_work)
        for worker in at_work:
            worker.awaited = worker.batch == oldest


def _sum_up_workers(told: LoaderLive) -> None:
    """Figures of the workers as they were seen replace those of the page: they go on while the consumer waits."""
    if not told.workers or any(worker.busy is None for worker in told.workers):
        return
    told.busy = sum(worker.busy or 0.0 for worker in told.workers) / len(told.workers)
    metered = [worker for worker in told.workers if worker.cpu is not None]
    weight = sum(worker.busy or 0.0 for worker in metered)
    if weight:
        told.cpu, told.runq, told.off = (
            sum((worker.busy or 0.0) * (getattr(worker, name) or 0.0) for worker in metered) / weight
            for name in ("cpu", "runq", "off")
        )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if whole and part is not None else None
