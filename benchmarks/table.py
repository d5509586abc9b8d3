"""Renders results: one aligned text table, and JSON that keeps every round."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

from benchmarks import statistics as stats
from benchmarks.entries import Case, Metric, Micro
from benchmarks.machine import cores
from benchmarks.measure import Measurement
from benchmarks.rounds import Heat
from benchmarks.statistics import Summary, Verdict

JSON_VERSION = 1

DISTURBED_CORES = 0.2
"""Cores used by other programs above which a verdict is marked: the neighbours are then measured, too."""


@dataclass
class Result:
    """All rounds of one case so far; filled by the command line, round after round."""

    entry: Case | Micro
    heats: list[Heat] = field(default_factory=list)
    micro: list[Measurement] = field(default_factory=list)
    crash: str | None = None

    @property
    def workers(self) -> int:
        """The case's workers; a micro case has none."""
        return self.entry.workers if isinstance(self.entry, Case) else 0

    @property
    def same_batches(self) -> bool:
        """Whether both sides delivered the same first batch in every round."""
        return all(
            heat.left.signature == heat.right.signature
            for heat in self.heats
            if not (heat.left.trouble or heat.right.trouble)
        )

    def figure_summary(self, metric: Metric) -> Summary | None:
        """Summarise one figure, or None before the first round."""
        if isinstance(self.entry, Micro):
            values = [each.facts.get(metric.fact, each.wall_us) for each in self.micro]
        else:
            values = stats.ratios(self.heats, metric, self.workers)
        return Summary.of(values) if values else None


HEADER = (
    "case",
    "left µs",
    "right µs",
    "cpu left",
    "cpu right",
    "figure",
    "median",
    "spread",
    "needed",
    "others",
    "",
)


def render(results: list[Result], sides: tuple[str, str]) -> str:
    """Return the table; ratios are left over right, so above 1 the right side is the faster one."""
    header = list(HEADER)
    header[1:5] = [f"{sides[0]} µs", f"{sides[1]} µs", "cpu µs", "cpu µs"]
    rows = [header]
    for result in results:
        rows.extend(_rows(result))
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = ["  ".join(_pad(cell, widths[i], i) for i, cell in enumerate(row)).rstrip() for row in rows]
    lines.insert(1, "-" * max(len(line) for line in lines))
    lines.extend(_footer(results))
    return "\n".join(lines)


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column in (0, 5, 10) else cell.rjust(width)


def _rows(result: Result) -> list[list[str]]:
    rows = []
    for number, figure in enumerate(result.entry.figures):
        summary = result.figure_summary(figure.metric)
        name = result.entry.name if number == 0 else ""
        sign = "<=" if figure.at_most else ">="
        unit = figure.metric.unit
        needed = f"{sign} {figure.bound:g}{unit}"
        if summary is None:
            mark = Verdict.CRASHED.value if result.crash else "not run" if result.heats else ""
            rows.append([name, *[""] * 4, figure.metric.label, "", "", needed, "", mark])
            continue
        mark = _mark(result, figure.bound, summary, stats.verdict(figure, summary, result.same_batches))
        times = _times(result) if number == 0 else [""] * 4
        spread = f"{summary.low:.2f}..{summary.high:.2f}" if len(summary.values) > 1 else "-"
        others = f"{_foreign_cores(result):.2f}" if number == 0 else ""
        rows.append(
            [name, *times, figure.metric.label, f"{summary.median:.2f}{unit}", spread, needed, others, mark]
        )
    return rows


def _mark(result: Result, bound: float, summary: Summary, verdict: Verdict) -> str:
    if result.crash:
        return f"{verdict.value}, then {Verdict.CRASHED.value}"
    notes = ["close"] if summary.straddles(bound) else []
    if _foreign_cores(result) > DISTURBED_CORES:
        notes.append("disturbed")
    return f"{verdict.value} ({', '.join(notes)})" if notes else verdict.value


def _times(result: Result) -> list[str]:
    if not result.heats:
        return [""] * 4
    sides = [[heat.left for heat in result.heats], [heat.right for heat in result.heats]]
    columns = []
    for of in (stats.wall_us, stats.cpu_us):
        for side in sides:
            times = [of(each) for each in side if not each.trouble]
            columns.append(_us(Summary.of(times).median) if times else "failed")
    return columns


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _foreign_cores(result: Result) -> float:
    loads = [m.foreign_cores for heat in result.heats for m in (heat.left, heat.right)]
    loads.extend(m.foreign_cores for m in result.micro)
    return Summary.of(loads).median if loads else 0.0


def _footer(results: list[Result]) -> list[str]:
    lines = []
    for result in results:
        heats = [heat for heat in result.heats if heat.inline is not None]
        if heats:
            lines.append("")
            lines.extend(_inline_lines(result, heats))
        lines.extend(_fact_lines(result))
        if not result.same_batches:
            lines.append(
                f"{result.entry.name}: the two sides delivered different batches; the ratio means nothing"
            )
        if result.crash:
            lines.extend(["", f"crashed: {result.crash}"])
    lines.append("")
    lines.append(
        "median and lowest..highest of the ratios of single rounds; 'others': cores used by other programs"
    )
    return lines


def _fact_lines(result: Result) -> list[str]:
    """Say for both sides what was measured beside the time, and what a loader said when it gave no batches."""
    lines = []
    for side in ("left", "right"):
        found = [heat.left if side == "left" else heat.right for heat in result.heats]
        names = dict.fromkeys(name for each in found for name in each.facts)
        medians = {
            name: Summary.of([each.facts[name] for each in found if name in each.facts]).median
            for name in names
        }
        said = [f"{name} {value:,.2f}" for name, value in medians.items()]
        said.extend([each.trouble for each in found if each.trouble][:1])
        if said:
            lines.append(f"{result.entry.name}, {side}: {'; '.join(said)}")
    return lines


def _inline_lines(result: Result, heats: list[Heat]) -> list[str]:
    """Say for both sides how the rate compares with inline processes, by each of the three readings."""
    lines = []
    for side in ("left", "right"):
        pairs = [(heat.left if side == "left" else heat.right, heat) for heat in heats]
        free = Summary.of([stats.efficiency(loader, heat, result.workers) for loader, heat in pairs])
        plain = Summary.of([stats.plain_efficiency(loader, heat, result.workers) for loader, heat in pairs])
        text = f"{result.entry.name}, {side}: {free.median:.2f} of one inline process x the free cores, "
        text += f"{plain.median:.2f} x all cores"
        beside = [stats.share_of_together(loader, heat) for loader, heat in pairs if heat.together]
        if beside:
            text += f", {Summary.of(beside).median:.2f} of {result.workers} inline processes side by side"
        lines.append(text)
    return lines


def as_json(
    results: list[Result], sides: tuple[str, str], rounds: int, quick: bool, seed: int
) -> dict[str, Any]:
    """Return every round, with the facts of the machine that a comparison needs."""
    return {
        "version": JSON_VERSION,
        "left": sides[0],
        "right": sides[1],
        "rounds": rounds,
        "quick": quick,
        "seed": seed,
        "machine": {
            "cores": cores(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "torch": metadata.version("torch"),
        },
        "cases": [_case_json(result) for result in results],
    }


def _case_json(result: Result) -> dict[str, Any]:
    figures = []
    for figure in result.entry.figures:
        summary = result.figure_summary(figure.metric)
        figures.append(
            {
                "metric": figure.metric.label,
                "needed": figure.bound,
                "at_most": figure.at_most,
                "summary": asdict(summary) if summary else None,
                "verdict": stats.verdict(figure, summary, result.same_batches).value if summary else None,
            }
        )
    return {
        "name": result.entry.name,
        "describe": result.entry.describe,
        "kind": result.entry.kind.name.lower(),
        "workers": result.workers,
        "same_batches": result.same_batches,
        "crash": result.crash,
        "figures": figures,
        "rounds": [asdict(heat) for heat in result.heats],
        "micro": [asdict(measurement) for measurement in result.micro],
    }
