"""Shows the memory of a run's processes over time: private, shared, and whether it grows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoker._record.finding import counted, size
from stoker._record.schema import LoaderRecord, WorkerRecord
from stoker._tools.render.section import Chart, Part, Prose, Remark, Section, Table, side_by_side
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections.parts.memory_chart import spec
from stoker._tools.report.page.sections.parts.memory_curves import (
    PARENT,
    LoaderMemory,
    ProcessMemory,
    memory_of,
    process_name,
)
from stoker._tools.report.page.terms import loaders, took

_MOST_RUNS = 4
_MOST_ROWS = 48
_LEAST_GROWTH_BYTES = 32 << 20
_LEAST_GROWTH = 0.2
"""Growth that is worth a word: so much, and so much of what the worker began with."""
_MUCH_BYTES, _MUCH = 1 << 30, 0.05
"""Of all workers together, and of the memory that there is: then it matters soon."""
_WORST = 0.25
_LEAST_SECONDS = 10.0
"""A shorter run says nothing of an hour."""


def section(material: Material) -> Section | None:
    """For each run its curve and its growth; side by side when there are several."""
    runs = enumerate(material.runs[:_MOST_RUNS])
    parts = side_by_side((run.label, _of_run(run, number)) for number, run in runs)
    return Section("memory", "Memory of the workers", parts) if parts else None


def _of_run(run: ReportedRun, number: int) -> tuple[Part, ...]:
    """Return the parts for the loader that costs most, of those that have something to show."""
    found = [loader for loader, _ in loaders(run)] or run.record.loaders
    for loader in found:
        seen = memory_of(loader)
        if seen.processes:
            return _over_time(run, loader, seen, number)
    for loader in found:
        if any(each.pss_bytes is not None for each in loader.workers):
            return (Prose("The record has no readings over time, only the last ones."), _last_table(loader))
    return ()


def _over_time(run: ReportedRun, loader: LoaderRecord, seen: LoaderMemory, number: int) -> tuple[Part, ...]:
    table = _table(seen)
    summary = _summary(seen, loader)
    title = "Memory over time" if seen.moments > 1 else "Memory, read once"
    chart = Chart(f"memory-{number}", title, summary, spec(seen), table)
    remark = _remark(run, loader, seen)
    return (chart,) if remark is None else (chart, remark)


def _summary(seen: LoaderMemory, loader: LoaderRecord) -> str:
    known = sum(1 for each in loader.workers if each.worker >= 0)
    workers = [each for each in seen.processes if each.worker != PARENT]
    parent = next((each for each in seen.processes if each.worker == PARENT), None)
    told = []
    if workers:
        private = sum(each.last.private_bytes for each in workers)
        pss = sum(each.last.pss_bytes for each in workers)
        told.append(
            f"{_weighed(len(workers), known)} occup{'ies' if len(workers) == 1 else 'y'} {size(pss)}: {size(private)} "
            f"for {'itself' if len(workers) == 1 else 'themselves'}, the rest is {'its' if len(workers) == 1 else 'their'} "
            "share of what processes share."
        )
    if parent is not None:
        told.append(f"The training process occupies {size(parent.last.pss_bytes)}.")
    grown = seen.most_grown
    if grown is None or grown.seconds <= 0:
        told.append(_since_first_batches(loader))
    elif grown.growth_bytes < 1 << 20:
        told.append(f"None of them grew by as much as 1 MiB in {took(grown.seconds * 1e9)}.")
    else:
        who = "the training process" if grown.worker == PARENT else f"worker {grown.worker}"
        told.append(
            f"Most grew {who}: {size(grown.first.private_bytes)} of its own became {size(grown.last.private_bytes)} in "
            f"{took(grown.seconds * 1e9)}{_trend(grown)}."
        )
    return " ".join(told)


def _since_first_batches(loader: LoaderRecord) -> str:
    """Where each process was read once: what workers know of their growth by themselves."""
    worst = max((each for each in loader.workers if each.worker >= 0), key=_grown_bytes, default=None)
    if worst is None or _grown_bytes(worst) < 0:
        return "There is one reading of each process: growth is not known."
    if _grown_bytes(worst) < 1 << 20:
        return "None of them took as much as 1 MiB more since its first batches."
    return (
        f"Most grew worker {worst.worker}: by {size(_grown_bytes(worst))} of its own since its first batches."
    )


def _grown_bytes(worker: WorkerRecord) -> int:
    """−1: not known."""
    return -1 if worker.private_growth_bytes is None else worker.private_growth_bytes


def _weighed(count: int, known: int) -> str:
    """Say how many were read; in a short run that may not be all."""
    return f"{count} of {known} workers" if count < known else counted(count, "worker")


def _trend(grown: ProcessMemory) -> str:
    still = grown.still_grows
    return "" if still is None else ", and it went on to the end" if still else ", and it levelled off"


def _remark(run: ReportedRun, loader: LoaderRecord, seen: LoaderMemory) -> Remark | None:
    """Growth that is large, with what it usually is."""
    workers = [each for each in seen.processes if each.worker != PARENT]
    worst = max(workers, key=lambda each: each.growth_bytes, default=None)
    if worst is None:
        return None
    if all(each.count == 1 for each in workers):
        return _remark_at_once(run, loader)
    if not _is_much(worst.growth_bytes, worst.first.private_bytes):
        return None
    whole = sum(max(0, each.growth_bytes) for each in workers)
    evidence = (
        f"{counted(len(workers), 'worker')} of {loader.dataset} took {size(whole)} more between their first reading and "
        f"their last, {took(worst.seconds * 1e9)} later; worker {worst.worker} alone {size(worst.growth_bytes)}."
    )
    if worst.still_grows and worst.seconds >= _LEAST_SECONDS:
        evidence += f" At this pace it is {size(whole / worst.seconds * 3600)} in an hour."
    return _called_out(run, whole, evidence)


def _remark_at_once(run: ReportedRun, loader: LoaderRecord) -> Remark | None:
    """Return a remark on a run so short that each worker was read once."""
    known = [each for each in loader.workers if each.worker >= 0 and _grown_bytes(each) >= 0]
    worst = max(known, key=_grown_bytes, default=None)
    if worst is None or not _is_much(_grown_bytes(worst), (worst.private_bytes or 0) - _grown_bytes(worst)):
        return None
    whole = sum(map(_grown_bytes, known))
    evidence = (
        f"{counted(len(known), 'worker')} of {loader.dataset} took {size(whole)} more since their first batches; "
        f"worker {worst.worker} alone {size(_grown_bytes(worst))}."
    )
    return _called_out(run, whole, evidence)


def _is_much(growth_bytes: int, first_bytes: int) -> bool:
    return growth_bytes >= max(_LEAST_GROWTH_BYTES, _LEAST_GROWTH * first_bytes)


def _called_out(run: ReportedRun, whole: int, evidence: str) -> Remark:
    room = run.record.machine.available_bytes or run.record.machine.memory_bytes
    share = whole / room if room else 0.0
    severity = "high" if share >= _WORST else "moderate" if share >= _MUCH or whole >= _MUCH_BYTES else "low"
    if room and share >= 0.01:
        evidence += f" That is {share:.0%} of the {size(room)} that could be taken when the run began."
    return Remark(
        code="STK601",
        severity=severity,
        title="Workers took more memory as they went",
        evidence=evidence,
        advice=(
            "If samples read lists, dicts or tables that were made before the workers started, each of them copies these page by "
            "page as it reads (copy-on-write): `stoker.share` makes them one copy for all. If the dataset keeps what it has read, "
            "bound that. `stoker doctor` says which attribute it is."
        ),
        edit="dataset = stoker.share(dataset)",
    )


def _table(seen: LoaderMemory) -> Table:
    shown = _chosen(seen.processes)
    rows = [
        (
            process_name(each.worker), str(each.last.pid), str(len(each.every)),
            size(each.first.pss_bytes), size(each.last.pss_bytes), size(each.first.private_bytes),
            size(each.last.private_bytes), _signed(each.growth_bytes) if each.count > 1 else "",
        )
        for each in shown
    ]  # fmt: skip
    workers = [each for each in seen.processes if each.worker != PARENT]
    if len(workers) > 1:
        first, last = [each.first for each in workers], [each.last for each in workers]
        again, grown = any(each.count > 1 for each in workers), sum(each.growth_bytes for each in workers)
        rows.append(
            (
                "all workers", "", str(sum(len(each.every) for each in workers)), size(sum(each.pss_bytes for each in first)),
                size(sum(each.pss_bytes for each in last)), size(sum(each.private_bytes for each in first)),
                size(sum(each.private_bytes for each in last)), _signed(grown) if again else "",
            )
        )  # fmt: skip
    caption = "First and last reading of each process"
    if len(shown) < len(seen.processes):
        caption += f"; the {len(shown)} that grew most, of {len(seen.processes)}"
    columns = (
        "process",
        "pid",
        "readings",
        "PSS, first",
        "PSS, last",
        "private, first",
        "private, last",
        "private, growth",
    )
    return Table(caption, columns, tuple(rows), numeric=frozenset(range(1, 8)))


def _chosen(processes: Sequence[ProcessMemory]) -> list[ProcessMemory]:
    """All, or those that grew most when there are hundreds."""
    if len(processes) <= _MOST_ROWS:
        return list(processes)
    most = sorted(processes, key=lambda each: -each.growth_bytes)[:_MOST_ROWS]
    return sorted(most, key=lambda each: each.worker)


def _last_table(loader: LoaderRecord) -> Table:
    def shown(nbytes: int | None) -> str:
        return "unknown" if nbytes is None else size(nbytes)

    rows = tuple(
        (
            process_name(each.worker), str(each.pid or ""), shown(each.pss_bytes), shown(each.private_bytes),
            shown(each.private_growth_bytes),
        )
        for each in loader.workers[:_MOST_ROWS]
    )  # fmt: skip
    columns = ("process", "pid", "PSS", "private", "private, since its first batches")
    return Table("Last reading of each process", columns, rows, numeric=frozenset({1, 2, 3, 4}))


def _signed(nbytes: float) -> str:
    return f"{'−' if math.copysign(1, nbytes) < 0 else '+'}{size(abs(nbytes))}"
