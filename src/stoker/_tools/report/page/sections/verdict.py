"""Shows the answer first: what the run waits for, why, what to do first, and the figures behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stoker._record.causes.thresholds import HIGH, MODERATE
from stoker._record.schema import LoaderRecord
from stoker._tools.render.section import Part, Prose, Remark, Section, Table, side_by_side
from stoker._tools.report.page.material import Material, ReportedRun
from stoker._tools.report.page.sections.findings import remark
from stoker._tools.report.page.terms import cut, edited, gained, loaders, number, percent, title, took
from stoker._tools.report.verdict import reasons
from stoker._tools.report.verdict.screen import cost_lines
from stoker._tools.report.verdict.verdict import LoaderVerdict, Verdict

_MOST_OTHERS = 8


def section(material: Material) -> Section | None:
    """For each run its answer, of a single one its figures, and for a tuning what it recommends."""
    alone = len(material.runs) == 1
    parts = [*side_by_side((run.label, _answer(run, alone)) for run in material.runs)]
    if material.traces is not None:
        parts += [Prose(line.text) for line in cost_lines(material.traces.cost)]
        parts += map(Prose, (*material.traces.why, *material.traces.notes))
    table = _figures(material.runs)
    if table is not None:
        parts.append(table)
    parts += [_tuning(each) for each in material.tunings]
    return Section("verdict", "Verdict", tuple(parts)) if parts else None


def _answer(run: ReportedRun, alone: bool) -> list[Part]:
    """``alone``: the report's headline is this run's sentence, and stands above already."""
    verdict = run.verdict
    parts: list[Part] = []
    if verdict.loaders:
        first, *others = verdict.loaders
        parts += [*map(Prose, first.why), *_first_step(first)] if alone else [_remark(first)]
        parts += [Prose(f"Also: {each.sentence}") for each in others[:_MOST_OTHERS]]
        if len(others) > _MOST_OTHERS:
            parts.append(Prose(f"… and {len(others) - _MOST_OTHERS} loaders more."))
    else:
        parts.append(Prose(verdict.headline))
    return [*parts, *map(Prose, _notes(verdict, run))]


def _first_step(loader: LoaderVerdict) -> list[Part]:
    """What to do first; the findings have the rest."""
    if not loader.findings:
        return []
    first = loader.findings[0]
    return [replace(remark(first), title="What to do first")]


def _remark(loader: LoaderVerdict) -> Remark:
    """The cause as a card, with what to do first."""
    finding = loader.findings[0] if loader.findings else None
    why = " ".join(loader.why)
    return Remark(
        code=reasons.label(loader.causes) if loader.causes.severity != "none" else "not data",
        severity=loader.causes.severity,
        title=loader.sentence,
        evidence=why or "There is nothing to divide: nobody waited.",
        advice="" if finding is None else finding.advice,
        edit=None if finding is None else remark(finding).edit,
        gain=None if finding is None else gained(finding.gain),
    )


def _notes(verdict: Verdict, run: ReportedRun) -> list[str]:
    return [*(line.text for line in cost_lines(verdict.cost)), *verdict.notes, *run.notes]


def _figures(runs: tuple[ReportedRun, ...]) -> Table | None:
    """Return the figures of the loader that costs most, for one run. Several are compared in a section of their own."""
    found = [pairs[0] for run in runs if (pairs := loaders(run))]
    if len(found) != 1:
        return None
    rows = tuple(_column(*found[0]).items())
    return Table(
        "Key figures, of the loader that costs most", ("figure", "value"), rows, numeric=frozenset({1})
    )


def _column(loader: LoaderRecord, verdict: LoaderVerdict) -> dict[str, str]:
    totals = loader.totals
    step_ns = (totals.wait_ns + totals.step_ns) / totals.steps if totals.steps else None
    workers = f"{verdict.crew.count} ({loader.executor})" if loader.kind.workers else "none"
    ready = totals.ready / totals.steps if totals.steps else None
    return {
        "loader": cut(title(loader), 28),
        "engine": cut(loader.engine, 28),
        "waiting for data": percent(verdict.causes.stall),
        "samples per second": number(verdict.rows_per_s),
        "a step, waiting included": took(step_ns),
        "workers": workers,
        "batches ready when asked for": percent(ready),
        "first batch after": took(verdict.first_batch_ns),
        "batches, epochs": f"{totals.steps:,} in {totals.epochs:,}",
    }


def _tuning(tuning: dict[str, Any]) -> Remark:
    """What the tuner recommends."""
    why, warnings = _sentences(tuning.get("why")), _sentences(tuning.get("warnings"))
    share = _gain(tuning)
    return Remark(
        code="tuning",
        severity=of_tuning(tuning),
        title=cut(str(tuning.get("verdict") or f"A tuning of {tuning.get('target')}"), 400),
        evidence=why,
        advice=warnings,
        edit=_edit(tuning.get("edit")),
        gain=f"about −{share:.0%} of the step's time" if share is not None else None,
    )


def of_tuning(tuning: dict[str, Any]) -> str:
    """How bad it is to leave things as they were: what a change gains was waiting."""
    if not tuning.get("changed"):
        return "none"
    share = _gain(tuning) or 0.0
    return "low" if share < MODERATE else "moderate" if share < HIGH else "high"


def _gain(tuning: dict[str, Any]) -> float | None:
    """Return the share of the step's time that is gained; None: not known, or nothing."""
    gain = tuning.get("gain")
    share = gain.get("middle") if isinstance(gain, dict) else None
    return float(share) if isinstance(share, int | float) and 0 < share <= 1 else None


def _sentences(value: Any) -> str:
    """Return the sentences of a list; empty for anything else."""
    return " ".join(each for each in value if isinstance(each, str)) if isinstance(value, list) else ""


def _edit(edit: Any) -> str | None:
    if not isinstance(edit, dict) or not edit.get("after"):
        return None
    before, site = edit.get("before"), edit.get("site")
    return edited(
        str(edit["after"]), None if before is None else str(before), None if site is None else str(site)
    )
