"""Reads from a loader's record what a replay needs: batch times, demand, and the measured point. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median

from stoker._record.causes.contention import foreign_cpus
from stoker._record.schema import LoaderRecord, Machine
from stoker._runtime.simulation.predictions import SimulationCase
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import ROUSING_NS, Demand, Work
from stoker._tools.report.trace.steps import Batch, BatchPart, batches
from stoker.argument_numbers import MOST_WORKERS

_CROWDED = 0.5
"""So many CPUs have to be missing before neighbours are reckoned with."""
MOST_WINDOW = 100_000
"""The largest window that a replay goes through."""
_LARGEST_WINDOW = 10_000
"""Of a record."""
_FEW = 8
"""Batches below which sums over the run are gone by."""


@dataclass(frozen=True, slots=True)
class RecordedWork:
    """What a loader did, ready to be done again otherwise."""

    name: str
    work: Work
    case: SimulationCase
    """As it was."""
    interval_ns: float
    """Between two batches, as measured, beyond the first window of every epoch."""
    stall: float
    notes: tuple[str, ...]


def recall(loader: LoaderRecord, machine: Machine) -> RecordedWork | None:
    """None when it handed out nothing. Raises RecordError for a table of steps that is damaged."""
    totals = loader.totals
    if not totals.steps:
        return None
    rows = list(batches(loader))
    notes: list[str] = []
    setting, window = _setting(loader, notes)
    cpus, crowded = _cpus(loader, machine, notes)
    work = _work(loader, rows, notes, crowded=crowded)
    handling_ns = work.handling_ns
    step_ns = totals.step_ns / totals.steps
    making_ns = 0.0 if setting.workers else work.typical_cpu_ns
    used_ns = (loader.load.loop_cpu_ns or 0) / totals.steps - handling_ns - making_ns
    demand = Demand(int(step_ns), int(min(step_ns, max(0.0, used_ns))), "record")
    in_order = _option(loader, "in_order", True) is not False
    case = SimulationCase(setting, cpus, demand, in_order=in_order, window=window)
    settled = _settled(loader, rows, window)
    if len(settled) < _FEW:
        settled = []
    waits_ns = [each.given_ns - each.asked_ns for each in settled]
    wait_ns = fmean(waits_ns) if waits_ns else max(0, totals.wait_ns - totals.open_ns) / totals.steps
    interval_ns = step_ns + wait_ns
    return RecordedWork(
        loader.name, work, case, interval_ns, wait_ns / interval_ns if interval_ns else 0.0, tuple(notes)
    )


def _setting(loader: LoaderRecord, notes: list[str]) -> tuple[Setting, int]:
    """The loader's, and its window in batches. Both are bounded: a replay goes through a window step by step."""
    given = _option(loader, "num_workers", None)
    workers = int(given) if isinstance(given, int) else sum(1 for each in loader.workers if each.worker >= 0)
    if not loader.kind.workers:
        workers = 0
    threads = _option(loader, "threads_per_worker", 1)
    split = _option(loader, "split_batches", None)
    window = loader.totals.window or max(1, 2 * workers)
    if workers > MOST_WORKERS or not 0 < window <= _LARGEST_WINDOW:
        notes.append(
            "The record names more workers or a larger window than a loader has: they are cut for the replay."
        )
        workers, window = min(workers, MOST_WORKERS), min(max(1, window), _LARGEST_WINDOW)
    setting = Setting(
        workers=workers,
        prefetch=max(1, -(-window // workers)) if workers else None,
        executor=loader.executor,
        split=split if isinstance(split, bool) else None,
        threads=min(threads, MOST_WORKERS) if isinstance(threads, int) and threads > 0 else 1,
        engine=loader.engine,
    )
    return setting, window if workers else 0


def _settled(loader: LoaderRecord, rows: list[Batch], window: int) -> list[Batch]:
    """Beyond the first window of every epoch; with the workers there were last, where ``auto`` changed their number."""
    first = _first_window(loader, window)
    settled = [each for each in rows if each.seq >= first] or rows
    changed_ns = max((each.at_ns for each in loader.events if each.kind == "tuning"), default=0)
    later = [each for each in settled if each.asked_ns >= changed_ns]
    return later if len(later) >= _FEW else settled


def _first_window(loader: LoaderRecord, window: int) -> int:
    """Batches that are begun at once with an epoch. A window that deepened was this deep before: what made it so counts."""
    workers, ahead = _option(loader, "num_workers", None), _option(loader, "prefetch_factor", None)
    if not isinstance(workers, int) or not isinstance(ahead, int):
        return window
    return min(window, max(1, workers * ahead))


def _option(loader: LoaderRecord, name: str, otherwise: object) -> object:
    return loader.options[name].value if name in loader.options else otherwise


def _cpus(loader: LoaderRecord, machine: Machine, notes: list[str]) -> tuple[float, bool]:
    """Return the CPUs that this job may count on, and whether others were at work on them."""
    usable = machine.usable or machine.affinity or machine.cpus
    if usable is None:
        notes.append(
            "How many CPUs there are is not in the record: taken as one for every worker and one more."
        )
        return 1.0 + max(1, len(loader.workers)), False
    others = foreign_cpus(loader.load) or 0.0
    crowded = (machine.cpus or usable) - others < usable - _CROWDED
    if crowded:
        notes.append(
            f"Others had {others:.1f} CPUs meanwhile: what workers waited for them, they wait in the replay too."
        )
    return float(usable), crowded


def _work(loader: LoaderRecord, rows: list[Batch], notes: list[str], *, crowded: bool) -> Work:
    """From the table of steps; where it holds no times, from sums."""
    cpu, runq = _shares(loader)
    made = [each for each in rows if each.parts and all(part.measured for part in each.parts)]
    size = max(1, round(median(each.rows for each in rows))) if rows else 1
    handling_ns = [each.given_ns - each.got_ns for each in rows if each.ready] or [0]
    parent_ns = int(_as_waited_for(median(handling_ns)))
    if len(made) < _FEW:
        notes.append(
            "The record holds no times of single batches: replayed are batches that all take the mean."
        )
        whole_ns = _mean_ns(loader)
        batch_ns, cpu_ns = int(whole_ns * (1 - runq)), int(whole_ns * cpu)
        queued = (int(whole_ns * runq),) if crowded else ()
        return Work(size, (batch_ns,), (min(cpu_ns, batch_ns),), parent_ns=parent_ns, queued_ns=queued)
    if loader.steps_dropped:
        notes.append(
            f"Replayed are {len(made)} of {loader.totals.steps} batches: those that the record has rows of."
        )
    times = [_times(each, cpu, runq) for each in made]
    parts = [part for each in made for part in each.parts]
    collating_ns = [
        part.collated_ns - part.fetched_ns for part in parts if part.fetched_ns and part.collated_ns
    ]
    return Work(
        size,
        tuple(whole for whole, _, _ in times),
        tuple(min(on_cpu, whole) for whole, on_cpu, _ in times),
        parent_ns=parent_ns,
        collate_ns=int(median(collating_ns)) if collating_ns else 0,
        batch_bytes=int(median(each.batch_bytes for each in made)),
        slow_ns=tuple(max(part.slow_ns for part in each.parts) for each in made),
        # Where nobody else was there, it was workers who kept each other waiting: that comes out of the replay by itself.
        queued_ns=tuple(queued for _, _, queued in times) if crowded else (),
    )


def _times(batch: Batch, cpu: float, runq: float) -> tuple[int, int, int]:
    """(time without the run queue, of which on a CPU, in the run queue) of all parts: by their own readings, or usual shares."""
    whole_ns = cpu_ns = queued_ns = 0.0
    for part in batch.parts:
        took_ns = part.sent_ns - part.received_ns
        own_cpu, own_runq = _own_shares(part, took_ns) or (cpu, runq)
        whole_ns += took_ns * (1 - own_runq)
        cpu_ns += took_ns * own_cpu
        queued_ns += took_ns * own_runq
    return int(whole_ns), int(cpu_ns), int(queued_ns)


def _own_shares(part: BatchPart, took_ns: int) -> tuple[float, float] | None:
    """Return the shares of a reading that is about this part and no other."""
    if not part.metered_ns or not 0.5 * took_ns < part.metered_ns < 1.5 * took_ns:
        return None
    cpu = min(1.0, part.cpu_ns / part.metered_ns)
    return cpu, min(1.0 - cpu, part.runq_ns / part.metered_ns)


def _shares(loader: LoaderRecord) -> tuple[float, float]:
    """On a CPU and on the run queue, of the time at work. Without readings: what the waits were put down to."""
    metered_ns = sum(each.metered_ns for each in loader.workers)
    if metered_ns:
        cpu = min(1.0, sum(each.cpu_ns for each in loader.workers) / metered_ns)
        return cpu, min(1.0 - cpu, sum(each.runq_ns for each in loader.workers) / metered_ns)
    whole_ns = sum(each.ns for each in loader.blame)
    waited_ns = sum(each.ns for each in loader.blame if each.cause == "io")
    return (1.0 - waited_ns / whole_ns if whole_ns else 1.0), 0.0


def _mean_ns(loader: LoaderRecord) -> float:
    totals = loader.totals
    busy_ns = sum(each.busy_ns for each in loader.workers if each.worker >= 0)
    if not loader.kind.workers or not busy_ns:
        return max(0, totals.wait_ns - totals.open_ns) / totals.steps
    return busy_ns / totals.steps


def _as_waited_for(handling_ns: float) -> float:
    """What ``Work.parent_ns`` would have been: the inverse of ``Work.handling_ns``."""
    return 2 * handling_ns if handling_ns < ROUSING_NS else handling_ns + ROUSING_NS
