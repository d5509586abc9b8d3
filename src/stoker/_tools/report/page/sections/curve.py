"""Shows what other numbers of workers would do: the scaling curve, the ceiling, the knee, and the choice."""

from __future__ import annotations

from collections.abc import Sequence

from stoker._record.finding import counted
from stoker._tools.render.section import Chart, Part, Prose, Section, Table
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.sections.parts.curve_chart import spec
from stoker._tools.report.page.sections.scaling import Curve, Measured, Predicted, of_run, of_tuning
from stoker._tools.report.page.terms import number, percent

_MOST_CURVES = 4
_CLOSE = 0.1
"""A replay that is further off than this is not to be read off to the last percent."""
_LIMITS = {
    "step": "ceiling",
    "cpus": "limit of the CPUs",
    "memory": "limit of memory",
    "storage": "limit of storage",
    "parent": "limit of the training process",
}


def section(material: Material) -> Section | None:
    """A chart for all runs, and one for each tuning."""
    parts: list[Part] = []
    curves = [found for run in material.runs[:_MOST_CURVES] if (found := of_run(run)) is not None]
    if curves:
        parts += [_chart(curves, "curve-runs"), _notes(curves)]
    for place, told in enumerate(material.tunings):
        found = of_tuning(told, str(told.get("target") or "tuning"))
        if found is not None:
            parts += [_chart([found], f"curve-tuning-{place}"), _notes([found])]
    return Section("curve", "How it scales with workers", tuple(parts)) if parts else None


def _chart(curves: Sequence[Curve], name: str) -> Chart:
    title = (
        f"Scaling of {curves[0].label}, measured" if curves[0].tuned else "Throughput by number of workers"
    )
    summary = " ".join(_sentence(each, len(curves) > 1) for each in curves)
    return Chart(name, title, summary, spec(curves), _table(curves))


def _sentence(curve: Curve, several: bool) -> str:
    """What is to be seen: where it is, how far it could go, from where on more is of no use, and why."""
    if several:
        return _short(curve)
    told = []
    there = [each for each in curve.measured if each.kind == "as it was"]
    if curve.wanted is None:
        there += [each for each in curve.measured if each.kind == "recommended"]
    if there:
        told.append(f"With {_workers(curve.now)} it is {number(there[0].per_s)} samples a second")
        if curve.ceiling is not None:
            told[-1] += f"; the training step alone allows {number(curve.ceiling.per_s)}"
    if curve.knee is not None:
        told.append(f"Beyond {_workers(curve.knee)} there is little to gain: {curve.reason}")
    if curve.wanted is not None:
        spare = curve.knee is not None and curve.wanted > curve.knee
        told.append(f"Recommended: {_workers(curve.wanted)}{', with some to spare' if spare else ''}")
    return "".join(f"{each}. " for each in told).strip()


def _short(curve: Curve) -> str:
    measured = curve.measured[0]
    text = f"{curve.label}: {number(measured.per_s)} samples a second with {_workers(curve.now)}"
    if curve.ceiling is not None:
        text += f", of {number(curve.ceiling.per_s)} that its step allows"
    return f"{text}{'' if curve.knee is None else f'; knee at {curve.knee}'}."


def _notes(curves: Sequence[Curve]) -> Prose:
    """What the lines are worth."""
    several = len(curves) > 1
    if several:
        told = [
            "Lines are not measured: batches that were are dealt to other numbers of workers in a replay."
        ]
    else:
        count = counted(curves[0].replayed, "batch", "batches")
        told = [f"The line is not measured: it replays {count} that were, dealt to other numbers of workers."]
    for curve in curves:
        whose = f"{curve.label}: the" if several else "The"
        if curve.error is not None:
            what = "settings that were measured" if curve.tuned else "run as it was"
            off = f"{percent(abs(curve.error))} {'slower' if curve.error > 0 else 'faster'}"
            shape = ", so read the line for its shape" if abs(curve.error) > _CLOSE else ""
            told.append(f"{whose} {what} come{'' if curve.tuned else 's'} out {off} in it{shape}.")
        told += [each for each in curve.notes if each not in told]
    return Prose(" ".join(told))


def _table(curves: Sequence[Curve]) -> Table:
    several = len(curves) > 1
    rows: list[tuple[str, ...]] = []
    for curve in curves:
        label = (curve.label,) * several
        rows += [(*label, *_row(curve, each)) for each in curve.predicted]
        for bound in curve.bounds:
            what = f"{_LIMITS.get(bound.name, bound.name)}: {bound.sentence}"
            rows.append((*label, "any", f"{number(bound.per_s)} at most", "", "", what))
    columns = ("workers", "samples/s, predicted", "waiting", "samples/s, measured", "which is")
    return Table(
        "Samples a second by number of workers",
        (*(("run",) * several), *columns),
        tuple(rows),
        frozenset(place + several for place in range(4)),
    )


def _row(curve: Curve, predicted: Predicted) -> tuple[str, ...]:
    there = [each for each in curve.measured if each.workers == predicted.workers]
    marks = [
        name
        for name, workers in (("as it was", curve.now), ("recommended", curve.wanted), ("knee", curve.knee))
        if workers == predicted.workers
    ]
    return (
        str(predicted.workers),
        number(predicted.per_s),
        percent(predicted.stall),
        "; ".join(_measured_text(each, len(there) > 1) for each in there),
        ", ".join(marks),
    )


def _measured_text(measured: Measured, several: bool) -> str:
    text = number(measured.per_s)
    if measured.low_per_s is not None and measured.high_per_s is not None:
        text += f" ({number(measured.low_per_s)} to {number(measured.high_per_s)})"
    return f"{text} with `{measured.setting}`" if several and measured.setting else text


def _workers(count: int) -> str:
    return counted(count, "worker") if count else "no workers"
