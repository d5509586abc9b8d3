"""Judges a run record: which loader costs most, how bad it is, why, and what to do. Pure; ``screen`` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._record.causes.causes import Causes, find_causes
from stoker._record.causes.contention import foreign_cpus
from stoker._record.finding import counted
from stoker._record.schema import Event, LoaderRecord, Machine, RunRecord, SlowestSample
from stoker._tools.report.verdict import reasons
from stoker._tools.report.verdict.advice import findings
from stoker._tools.report.verdict.codes import VerdictFinding

HOURS_PER_MONTH = 730
_FEW_STEPS = 16
_LEAST_NEIGHBOUR = 0.3
"""CPUs that others use, from which on it is said. A desktop or a cluster's agents use less."""
_MOST_SLOW = 5
_MOST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class WorkersSummary:
    """The workers of a loader together. Shares are of the time at work that was metered; None: no readings."""

    count: int
    busy: float | None
    """Share of the loader's time at work."""
    cpu: float | None
    runq: float | None
    off: float | None
    growth_bytes: int | None
    """Private memory that the worst of them has gained."""


@dataclass(frozen=True, slots=True)
class LoaderVerdict:
    """The answer for one loader."""

    name: str
    site: str | None
    engine: str
    executor: str
    dataset: str
    steps: int
    epochs: int
    rows_per_s: float | None
    first_batch_ns: int | None
    causes: Causes
    sentence: str
    why: tuple[str, ...]
    evidence: tuple[str, ...]
    findings: tuple[VerdictFinding, ...]
    crew: WorkersSummary
    slowest: tuple[SlowestSample, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What the idle share comes to in a month of 730 hours, at the price and the power that were given."""

    idle: float
    price_per_hour: float | None
    money_per_month: float | None
    watts: float | None
    kwh_per_month: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for a run. ``loaders`` begins with the one that costs most. ``notes`` say what one has to know of the run."""

    headline: str
    loaders: tuple[LoaderVerdict, ...]
    cost: Cost | None
    notes: tuple[str, ...]


def judge(record: RunRecord, *, price_per_hour: float | None = None, watts: float | None = None) -> Verdict:
    """Say what a run shows. Raises nothing for a record that is whole; loaders that handed out nothing are noted."""
    used = [each for each in record.loaders if each.totals.steps or each.totals.wait_ns]
    found = sorted((_loader(each, record) for each in used), key=lambda each: -each.causes.exposed_ns)
    headline = (
        found[0].sentence if found else "No DataLoader delivered a batch, so there is nothing to judge."
    )
    notes = _notes(record)
    notes += _neighbours(max(used, key=lambda each: each.load.wall_ns, default=None), record.machine)
    if found and 0 < found[0].steps < _FEW_STEPS:
        notes.append(f"This rests on {counted(found[0].steps, 'batch', 'batches')}, too few to rely on.")
    return Verdict(headline, tuple(found), _cost(found, price_per_hour, watts), tuple(notes))


def _loader(loader: LoaderRecord, record: RunRecord) -> LoaderVerdict:
    machine = record.machine
    causes = find_causes(loader, machine)
    totals = loader.totals
    whole_ns = totals.wait_ns + totals.step_ns
    return LoaderVerdict(
        name=loader.name,
        site=loader.site,
        engine=loader.engine,
        executor=loader.executor,
        dataset=loader.dataset,
        steps=totals.steps,
        epochs=totals.epochs,
        rows_per_s=totals.rows / whole_ns * 1e9 if whole_ns and totals.rows else None,
        first_batch_ns=totals.first_batch_ns,
        causes=causes,
        sentence=reasons.sentence(loader, causes),
        why=reasons.why(loader, machine, causes),
        evidence=reasons.evidence(loader, causes),
        findings=findings(loader, machine, causes, record.run.world_size),
        crew=_workers_summary(loader),
        slowest=tuple(loader.slowest[:_MOST_SLOW]),
        events=tuple(loader.events[-_MOST_EVENTS:]),
    )


def _workers_summary(loader: LoaderRecord) -> WorkersSummary:
    workers = [each for each in loader.workers if each.worker >= 0]
    metered_ns = sum(each.metered_ns for each in workers)
    grown = [each.private_growth_bytes for each in workers if each.private_growth_bytes is not None]
    at_work_ns = loader.totals.wait_ns + loader.totals.step_ns
    count = _count(loader, len(workers))
    changed = any(each.kind == "tuning" for each in loader.events)  # the number of workers, in the middle

    def share(part_ns: int) -> float | None:
        return part_ns / metered_ns if metered_ns else None

    return WorkersSummary(
        count=count,
        busy=min(1.0, sum(each.busy_ns for each in workers) / (at_work_ns * count))
        if at_work_ns and count and not changed
        else None,
        cpu=share(sum(each.cpu_ns for each in workers)),
        runq=share(sum(each.runq_ns for each in workers)),
        off=share(sum(each.off_ns for each in workers)),
        growth_bytes=max(grown, default=None),
    )


def _count(loader: LoaderRecord, seen: int) -> int:
    """How many work at a time: more have been seen when some were replaced, or came anew with each epoch."""
    option = loader.options.get("num_workers")
    return option.value if option is not None and isinstance(option.value, int) and option.value else seen


def _cost(found: list[LoaderVerdict], price_per_hour: float | None, watts: float | None) -> Cost | None:
    if not found:
        return None
    whole_ns = sum(each.causes.wait_ns + each.causes.step_ns for each in found)
    idle = sum(each.causes.exposed_ns for each in found) / whole_ns if whole_ns else 0.0
    return cost(idle, price_per_hour, watts)


def cost(idle: float, price_per_hour: float | None, watts: float | None) -> Cost | None:
    """What an idle share comes to; None: neither price nor power is known."""
    if price_per_hour is None and watts is None:
        return None
    return Cost(
        idle,
        price_per_hour,
        None if price_per_hour is None else idle * price_per_hour * HOURS_PER_MONTH,
        watts,
        None if watts is None else idle * watts * HOURS_PER_MONTH / 1000,
    )


def _neighbours(loader: LoaderRecord | None, machine: Machine) -> list[str]:
    """Whether others had CPUs meanwhile: every number of the run depends on them."""
    foreign = None if loader is None else foreign_cpus(loader.load)
    if foreign is None or foreign < _LEAST_NEIGHBOUR:
        return []
    of = f" of {machine.cpus}" if machine.cpus else ""
    return [
        f"Other processes used {foreign:.1f}{of} CPUs meanwhile: without them, times and gains would differ."
    ]


def _notes(record: RunRecord) -> list[str]:
    notes = []
    run = record.run
    if run.exit not in (None, "0"):
        notes.append(f"The script ended with {run.exit}; the record covers the run until then.")
    elif not run.ended:
        notes.append("The record was written before the run ended: the run still goes on, or was killed.")
    idle = sum(1 for each in record.loaders if not each.totals.steps and not each.totals.wait_ns)
    if idle and idle < len(record.loaders):
        notes.append(f"{idle} of {len(record.loaders)} loaders delivered no batch.")
    return notes
