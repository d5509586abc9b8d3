"""Shows the machine, the options and the events of the runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker._record.finding import size
from stoker._record.schema import LoaderRecord, WorkerRecord
from stoker._tools.render.section import Part, Prose, Section, Table, side_by_side
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.terms import cut, loaders, percent, title, took
from stoker._tools.report.verdict.table import plain

_MOST_EVENTS = 60
_MOST_WORKERS = 32
_LONGEST = 120
_MISSING = "not known"


def section(material: Material) -> Section | None:
    """One table of facts for all runs; then for each its workers, its options and its events."""
    if not material.runs:
        return None
    parts = (_facts(material.runs), *side_by_side((run.label, _of(run)) for run in material.runs))
    return Section("machine", "Machine, options, events", parts)


def _facts(runs: tuple[ReportedRun, ...]) -> Table:
    columns = [_column(run) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, *(column.get(name, _MISSING) for column in columns)) for name in names]
    labels = ["value"] if len(runs) == 1 else [run.label for run in runs]
    rows = [row for row in rows if any(cell != _MISSING for cell in row[1:])]
    return Table("The machine and the run", ("fact", *labels), tuple(rows))


def _column(run: ReportedRun) -> dict[str, str]:
    machine, about = run.record.machine, run.record.run
    facts = {
        "command": cut(" ".join(map(str, about.argv)), _LONGEST) or _MISSING,
        "ended": "yes" if about.ended else "no: under way, or killed",
        "exit": _value_text(about.exit),
        "rank": f"{about.rank} of {about.world_size}" if about.world_size > 1 else _MISSING,
        "CPUs": _value_text(machine.cpus),
        "usable CPUs": _value_text(machine.usable),
        "because": _value_text(machine.usable_reason),
        "quota": _value_text(machine.quota, lambda quota: f"{quota:g} CPUs"),
        "memory": _value_text(machine.memory_bytes, size),
        "available": _value_text(machine.available_bytes, size),
        "/dev/shm free": _value_text(machine.shm_free_bytes, size),
        "file descriptors": _value_text(machine.descriptors, lambda count: f"{count:,}"),
        "interpreter's lock": _value_text(machine.gil, lambda gil: "yes" if gil else "no"),
        "accelerators": cut(", ".join(map(str, machine.accelerators)), _LONGEST) or "none in use",
    }
    for name, version in list(machine.versions.items())[:12]:
        facts[cut(str(name), 24)] = cut(str(version), _LONGEST)
    return facts


def _value_text(value: Any, how: Callable[[Any], str] = str) -> str:
    return _MISSING if value is None else cut(how(value), _LONGEST)


def _of(run: ReportedRun) -> list[Part]:
    parts: list[Part] = []
    for place, (loader, _) in enumerate(loaders(run)[:4]):
        if loader.workers:
            parts.append(_workers(loader))
        if not place:
            parts += [_options(loader)] if loader.options else []
        parts += _events(loader)
    return parts


def _workers(loader: LoaderRecord) -> Table:
    columns = (
        "worker",
        "batches",
        "rows",
        "at work",
        "on a CPU",
        "ready, no CPU",
        "off the CPU",
        "PSS",
        "private",
        "grew by",
    )
    workers = loader.workers[:_MOST_WORKERS]
    more = f", {len(workers)} of {len(loader.workers)}" if len(workers) < len(loader.workers) else ""
    rows = list(map(_worker, workers))
    kept = [place for place in range(len(columns)) if any(row[place] != _MISSING for row in rows)]
    return Table(
        f"Workers of {title(loader)}{more}",
        tuple(columns[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in rows),
        numeric=frozenset(range(1, len(kept))),
    )


def _worker(worker: WorkerRecord) -> tuple[str, ...]:
    def share(ns: int) -> str:
        return percent(ns / worker.metered_ns) if worker.metered_ns > 0 else _MISSING

    def bytes_(count: int | None) -> str:
        return _MISSING if count is None else f"−{size(-count)}" if count < 0 else size(count)

    name = f"{worker.worker}" if worker.worker >= 0 else "training process"
    return (
        name if worker.pid is None else f"{name} (pid {worker.pid})",
        f"{worker.tasks:,}",
        f"{worker.rows:,}",
        took(worker.busy_ns),
        share(worker.cpu_ns),
        share(worker.runq_ns),
        share(worker.off_ns),
        bytes_(worker.pss_bytes),
        bytes_(worker.private_bytes),
        bytes_(worker.private_growth_bytes),
    )


def _options(loader: LoaderRecord) -> Table:
    rows = tuple(
        (cut(name, 32), cut(repr(option.value), 48), cut(str(option.why), _LONGEST))
        for name, option in list(loader.options.items())[:60]
    )
    return Table(f"Options of {title(loader)}", ("option", "value", "why"), rows)


def _events(loader: LoaderRecord) -> list[Part]:
    if not loader.events:
        return []
    shown = loader.events[-_MOST_EVENTS:]
    rows = tuple((f"{each.at_ns / 1e9:.3f} s", plain(each.kind), cut(each.reason, 400)) for each in shown)
    parts: list[Part] = [
        Table(f"What happened to {title(loader)}", ("at", "event", "reason"), rows, frozenset({0}))
    ]
    left_out = len(loader.events) - len(shown) + loader.events_dropped
    if left_out > 0:
        parts.append(Prose(f"These are the last {len(shown)}; {left_out:,} before them are left out."))
    return parts
