"""Compares runs side by side: what differs, whether that is more than noise, and whether it is a gain."""

from __future__ import annotations

from collections.abc import Sequence

from stoker._tools.render.section import Chart, Part, Prose, Section, Table
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.sections.parts import comparison
from stoker._tools.report.page.sections.parts.compare_chart import spec
from stoker._tools.report.page.sections.parts.comparison import Figure, Ratio, Side
from stoker._tools.report.page.terms import percent

_MOST_DRAWN = 8
_COLUMNS = (
    "waiting for data",
    "a step, without waiting",
    "waiting, per batch",
    "first batch after",
    "workers",
    "private memory of a worker",
)
"""Of more than two runs: what each has a column for, beside samples a second."""


def section(material: Material) -> Section | None:
    """None for less than two runs that handed something out."""
    sides = [found for run in material.runs if (found := comparison.side(run)) is not None]
    if len(sides) < 2:
        return None
    figures = comparison.figures(sides)
    parts: list[Part] = [Prose(each) for each in comparison.cautions(sides)]
    table = _pair(sides, figures) if len(sides) == 2 else _many(sides, figures)
    parts.append(_chart(sides, figures, table) if len(sides) <= _MOST_DRAWN else table)
    parts += _differences(sides)
    return Section("compare", "Side by side", tuple(parts))


def headline(material: Material) -> str | None:
    """What it comes to, in a sentence: of two runs the second against the first, of more the best. None: there are not two."""
    sides = [found for run in material.runs if (found := comparison.side(run)) is not None]
    return _sentence(sides) if len(sides) > 1 else None


def _sentence(sides: Sequence[Side]) -> str:
    if len(sides) > 2:
        return _best(sides)
    first, other = sides
    waits = f"{other.label} waits {percent(other.stall)} of its time for data, {first.label} {percent(first.stall)}"
    ratio = comparison.ratio(first, other)
    if ratio is None:
        return f"{waits}."
    differ = comparison.machines_differ(sides)
    if differ:
        facts = ", ".join(f"{name} {row[0]} and {row[1]}" for name, *row in differ[:3])
        return f"{waits}: {_times(ratio.middle)} the samples/s, but the machines differ ({facts}), so that is no gain."
    if ratio.certain is False:
        return (
            f"{waits}: {_times(ratio.middle)} the samples/s, which is within the variation inside the runs "
            f"({_range(ratio)}): that is no difference."
        )
    sure = f" ({_range(ratio)})" if ratio.certain else "; the runs are too short to say how sure that is"
    return f"{waits}: {_times(ratio.middle)} the samples/s{sure}."


def _best(sides: Sequence[Side]) -> str:
    known = [each for each in sides if each.verdict.rows_per_s]
    if not known:
        return f"{len(sides)} runs, none of which counted samples."
    best = max(known, key=lambda each: each.verdict.rows_per_s or 0.0)
    text = f"Of {len(sides)} runs {best.label} makes the most samples/s"
    ratio = comparison.ratio(sides[0], best)
    if best is not sides[0] and ratio is not None:
        text += f", {_times(ratio.middle)} those of {sides[0].label}"
        text += ", which is within what varies inside the runs" if ratio.certain is False else ""
    if comparison.machines_differ(sides):
        text += ". The machines differ, so that is no gain"
    return f"{text}."


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio < 9.95 else f"{ratio:.0f}×"


def _range(ratio: Ratio) -> str:
    return f"{_times(ratio.low or 0.0)} to {_times(ratio.high or 0.0)}"


def _pair(sides: Sequence[Side], found: Sequence[Figure]) -> Table:
    first, other = sides
    measured = comparison.ratio(first, other)
    rows = []
    for each in found:
        ratio = each.ratio()
        told = "" if ratio is None else _times(ratio)
        if each.name == "samples per second" and measured is not None and measured.low is not None:
            told += f" ({_range(measured)})"
        rows.append((each.name, *map(each.format, each.values), _difference(each), told))
    return Table(
        f"{other.label} against {first.label}; in brackets what holds with 90 %, as far as the runs themselves vary",
        ("figure", first.label, other.label, "difference", "ratio"),
        tuple(rows),
        numeric=frozenset({1, 2, 3, 4}),
    )


def _difference(figure: Figure) -> str:
    first, other = figure.values[0], figure.values[1]
    if first is None or other is None:
        return ""
    change = other - first
    if figure.format is percent:
        return f"{'+' if change >= 0 else '−'}{abs(change) * 100:.1f} points"
    return "none" if not change else f"{'+' if change > 0 else '−'}{figure.format(abs(change))}"


def _many(sides: Sequence[Side], found: Sequence[Figure]) -> Table:
    shown = [each for each in found if each.name in ("samples per second", *_COLUMNS)]
    rows = []
    for place, each in enumerate(sides):
        ratio = comparison.ratio(sides[0], each)
        told = (
            ""
            if ratio is None
            else _times(ratio.middle) + (f" ({_range(ratio)})" if ratio.low is not None else "")
        )
        rows.append(
            (each.label, *(figure.format(figure.values[place]) for figure in shown), told if place else "1×")
        )
    return Table(
        f"One run a row; samples/s against {sides[0].label}",
        ("run", *(each.name for each in shown), "samples/s, ratio"),
        tuple(rows),
        numeric=frozenset(range(1, len(shown) + 2)),
    )


def _chart(sides: Sequence[Side], found: Sequence[Figure], table: Table) -> Chart:
    shown = [each for each in found if each.short][: None if len(sides) == 2 else 2]
    summary = (
        "Each figure of each run, as long as it is large against the largest of its kind. Of samples more is better, of the rest "
        "less."
    )
    return Chart("compare-figures", "Figure by figure", summary, spec(sides, shown), table)


def _differences(sides: Sequence[Side]) -> list[Part]:
    """What else is not the same, in tables."""
    labels = [each.label for each in sides]
    parts: list[Part] = []
    for what, rows in (
        ("Machines", comparison.machines_differ(sides)),
        ("Versions", comparison.versions_differ(sides)),
        ("Options of the loaders", comparison.options_differ(sides)),
    ):
        if rows:
            parts.append(Table(f"{what} that differ", ("what", *labels), tuple(rows)))
    if not parts:
        parts.append(
            Prose("Machine, versions and options of the loaders are the same, as far as the records tell.")
        )
    return parts
