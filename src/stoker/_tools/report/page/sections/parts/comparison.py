"""Computes a comparison of runs: their figures, how sure a ratio is, and what else differs. Pure.

The first run is what the others are held against. Stretches of a run stand for its noise: drawing from them again and again gives
the interval of a ratio. Another run of the same script may differ by more.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from stoker._record.causes.contention import foreign_cpus
from stoker._record.finding import size
from stoker._record.schema import LoaderRecord, Machine
from stoker._tools.report.page.material import ReportedRun
from stoker._tools.report.page.terms import cut, loaders, number, percent, took
from stoker._tools.report.trace.steps import batches
from stoker._tools.report.verdict.table import cause_of, plain
from stoker._tools.report.verdict.verdict import LoaderVerdict
from stoker.errors import RecordError

_LEAST_PIECES = 4
_MOST_PIECES = 24
_DRAWS = 400
_LIKE = 0.1
"""Steps and sizes of memory that differ by less are the same."""
_CROWD = 0.5
"""CPUs that others had in one run and not in the other, which is worth a word."""
_LEAST_CAUSE = 0.005
"""Share of the time below which a cause has no line of its own."""


Formatter = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Side:
    """One run, by its loader that costs most."""

    label: str
    loader: LoaderRecord
    verdict: LoaderVerdict
    machine: Machine

    @property
    def stall(self) -> float:
        return self.verdict.causes.stall or 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of every run; None: not measured."""

    name: str
    values: tuple[float | None, ...]
    format: Formatter
    short: str = ""
    """What it is called where there is little room; "": it is not drawn."""

    def ratio(self, place: int = 1) -> float | None:
        """To the first run's."""
        first, other = self.values[0], self.values[place]
        return None if not first or other is None else other / first


@dataclass(frozen=True, slots=True)
class Ratio:
    """Samples a second, to the first run's. ``low`` and ``high`` hold it with 90 % as far as the runs themselves show; None: too
    short to tell."""

    middle: float
    low: float | None
    high: float | None

    @property
    def certain(self) -> bool | None:
        """Whether there is a difference beyond what varies within the runs."""
        return None if self.low is None or self.high is None else not self.low <= 1.0 <= self.high


def side(run: ReportedRun) -> Side | None:
    """None for a run that handed out nothing."""
    found = [(loader, verdict) for loader, verdict in loaders(run) if verdict.steps]
    return Side(run.label, *found[0], run.record.machine) if found else None


def figures(sides: Sequence[Side]) -> list[Figure]:
    """Return the figures, those that matter first. It leaves out what nobody measured."""

    def of(name: str, value: Callable[[Side], float | None], told: Formatter, short: str = "") -> Figure:
        return Figure(name, tuple(value(each) for each in sides), told, short)

    causes = _causes(sides)
    found = [
        of("samples per second", lambda each: each.verdict.rows_per_s, number, "samples/s"),
        of("waiting for data", lambda each: each.verdict.causes.stall, percent, "waiting"),
        of(
            "a step, without waiting",
            lambda each: each.loader.totals.step_ns / each.verdict.steps,
            took,
            "step alone",
        ),
        of(
            "waiting, per batch",
            lambda each: each.verdict.causes.wait_ns / each.verdict.steps,
            took,
            "wait per batch",
        ),
        *(of(f"… {plain(cause)}", partial(_waited_ns, cause=cause), took) for cause in causes),
        of("first batch after", lambda each: each.verdict.first_batch_ns, took, "first batch"),
        of("ready when asked for", lambda each: each.loader.totals.ready / each.verdict.steps, percent),
        of("workers", lambda each: float(each.verdict.crew.count), number),
        of("CPU time per batch", _cpu_ns, took, "CPU per batch"),
        of("private memory of a worker", partial(_of_workers, name="private_bytes"), _bytes, "own memory"),
        of("PSS of a worker", partial(_of_workers, name="pss_bytes"), _bytes),
        of("growth of a worker", partial(_of_workers, name="private_growth_bytes"), _bytes),
        of("workers that died", lambda each: float(each.loader.totals.worker_deaths), number),
        of("bad samples", lambda each: float(each.loader.totals.bad_samples), number),
    ]
    quiet = ("workers that died", "bad samples")
    return [
        each
        for each in found
        if any(value is not None for value in each.values) and (each.name not in quiet or any(each.values))
    ]


def _causes(sides: Sequence[Side]) -> list[str]:
    """Return the causes of waiting that any of them shows, the largest first."""
    sums: dict[str, float] = {}
    for each in sides:
        whole_ns = max(1, each.verdict.causes.wait_ns + each.verdict.causes.step_ns)
        for part in each.verdict.causes.parts:
            cause = cause_of(part)
            share = _waited_ns(each, cause) * each.verdict.steps / whole_ns
            sums[cause] = max(sums.get(cause, 0.0), share)
    return sorted(
        (cause for cause, share in sums.items() if share >= _LEAST_CAUSE), key=lambda cause: -sums[cause]
    )


def _waited_ns(side: Side, cause: str) -> float:
    return sum(each.ns for each in side.verdict.causes.parts if cause_of(each) == cause) / side.verdict.steps


def _cpu_ns(side: Side) -> float | None:
    used_ns = side.loader.load.own_cpu_ns
    return None if used_ns is None else used_ns / side.verdict.steps


def _of_workers(side: Side, name: str) -> float | None:
    found = [getattr(each, name) for each in side.loader.workers if each.worker >= 0]
    known = [each for each in found if each is not None]
    return fmean(known) if known else None


def _bytes(value: float | None) -> str:
    return "not measured" if value is None else size(value)


def ratio(first: Side, other: Side) -> Ratio | None:
    """Return the ratio of samples a second; None where one of them has none."""
    a, b = first.verdict.rows_per_s, other.verdict.rows_per_s
    if not a or not b:
        return None
    pieces, its = _pieces(first.loader), _pieces(other.loader)
    if min(len(pieces), len(its)) < _LEAST_PIECES:
        return Ratio(b / a, None, None)
    draw = random.Random(0)
    base = _rate(its) / _rate(pieces)
    drawn = sorted(
        _rate(draw.choices(its, k=len(its))) / _rate(draw.choices(pieces, k=len(pieces))) / base
        for _ in range(_DRAWS)
    )
    low, high = drawn[_DRAWS // 20], drawn[-_DRAWS // 20]
    return Ratio(b / a, b / a * low, b / a * high)


Piece = tuple[int, int]
"""Batches of a stretch, and its nanoseconds."""


def _rate(pieces: Iterable[Piece]) -> float:
    counts, spans = zip(*pieces, strict=True)
    return float(sum(counts) / max(1, sum(spans)))


def _pieces(loader: LoaderRecord) -> list[Piece]:
    """Stretches of about equal length: the record's periods, or the steps that it kept where the run was short."""
    found = [
        (each.steps, each.wait_ns + each.step_ns)
        for each in loader.periods
        if each.steps > 0 and each.wait_ns + each.step_ns > 0
    ]
    if len(found) < 2 * _LEAST_PIECES:
        found = _from_steps(loader) or found
    size = -(-len(found) // _MOST_PIECES)
    grouped = [found[at : at + size] for at in range(0, len(found), max(1, size))]
    return [(sum(count for count, _ in each), sum(ns for _, ns in each)) for each in grouped]


def _from_steps(loader: LoaderRecord) -> list[Piece]:
    try:
        rows = list(batches(loader))
    except RecordError:
        return []
    return [
        (1, after.given_ns - before.given_ns)
        for before, after in itertools.pairwise(rows)
        if before.goes_on and after.given_ns > before.given_ns
    ]


def machines_differ(sides: Sequence[Side]) -> list[tuple[str, ...]]:
    """Facts that make them different machines: (name, of each). Empty: nothing says that they are not the same."""
    facts: dict[str, Callable[[Machine], str]] = {
        "CPUs": lambda machine: _value_text(machine.cpus),
        "usable CPUs": lambda machine: _value_text(machine.usable),
        "quota": lambda machine: _value_text(machine.quota),
        "memory": lambda machine: _rounded(machine.memory_bytes),
        "accelerators": lambda machine: cut(", ".join(map(str, machine.accelerators)), 60) or "none",
    }
    return _different(facts, [each.machine for each in sides])


def versions_differ(sides: Sequence[Side]) -> list[tuple[str, ...]]:
    """Return the versions of Python, the system, torch and stoker that differ."""
    names = list(dict.fromkeys(name for each in sides for name in each.machine.versions))
    facts: dict[str, Callable[[Machine], str]] = {str(name): partial(_version, name=name) for name in names}
    return _different(facts, [each.machine for each in sides])


def options_differ(sides: Sequence[Side]) -> list[tuple[str, ...]]:
    """Return what differs between the loaders: engine, dataset, arguments.

    An argument that only some loaders have is left out where the others have its default.
    """
    things = [each.loader for each in sides]
    facts: dict[str, Callable[[LoaderRecord], str]] = {
        "engine": lambda loader: cut(loader.engine),
        "executor": lambda loader: cut(loader.executor),
        "dataset": lambda loader: cut(loader.dataset),
        "made at": lambda loader: cut(_value_text(loader.site)),
    }
    for name in dict.fromkeys(name for each in things for name in each.options):
        found = [each.options.get(name) for each in things]
        given = [
            each for each in found if each is not None and each.value is not None and each.why != "default"
        ]
        if all(found) or given:
            facts.setdefault(str(name), partial(_option, name=name))
    return _different(facts, things)


def cautions(sides: Sequence[Side]) -> list[str]:
    """What else keeps a difference from being the loader's doing, in sentences."""
    told = []
    if len({each.loader.dataset for each in sides}) > 1:
        told.append("The datasets differ: this is not the same work done twice.")
    sizes = [_option(each.loader, "batch_size") for each in sides]
    if len(set(sizes)) > 1:
        told.append("The batch sizes differ: samples a second can be compared, times of a batch cannot.")
    steps_ns = [each.loader.totals.step_ns / each.verdict.steps for each in sides]
    if min(steps_ns) and max(steps_ns) / min(steps_ns) > 1 + _LIKE:
        each_step = ", ".join(f"{took(ns)} in {each.label}" for ns, each in zip(steps_ns, sides, strict=True))
        told.append(f"The training step itself differs, data aside: {each_step}.")
    others = [foreign_cpus(each.loader.load) for each in sides]
    known = [each for each in others if each is not None]
    if len(known) == len(sides) and max(known) - min(known) > _CROWD:
        crowds = ", ".join(f"{cpus:.1f} in {each.label}" for cpus, each in zip(known, sides, strict=True))
        told.append(f"Other processes had different shares of the machine: CPUs they used, {crowds}.")
    return told


def _different(facts: dict[str, Callable[[Any], str]], things: Sequence[Any]) -> list[tuple[str, ...]]:
    rows = [(name, *(how(each) for each in things)) for name, how in facts.items()]
    return [row for row in rows if len(set(row[1:])) > 1]


def _value_text(value: Any) -> str:
    return "not known" if value is None else str(value)


def _version(machine: Machine, name: str) -> str:
    return cut(_value_text(machine.versions.get(name)), 60)


def _option(loader: LoaderRecord, name: str) -> str:
    found = loader.options.get(name)
    return "not given" if found is None else cut(repr(found.value))


def _rounded(nbytes: int | None) -> str:
    """What is called the same amount: kernels keep some for themselves."""
    return "not known" if nbytes is None else f"{round(nbytes / (1 << 30))} GiB"
