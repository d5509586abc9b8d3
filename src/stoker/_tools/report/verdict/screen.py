"""Shows a verdict on one screen, or as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from textwrap import shorten
from typing import Any, TextIO

from stoker._host.secrets import masked_values
from stoker._record.finding import counted, duration
from stoker._tools.render import terminal
from stoker._tools.render.terminal import COLOURS, MARGIN, WIDEST, Line, fitted, indented, section
from stoker._tools.report.verdict import table
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.verdict import Cost, LoaderVerdict, Verdict, WorkersSummary
from stoker.arguments import executor_kind

_VERSION = 1
_MOST_OTHERS = 4
_MOST_FINDINGS = 3
_MOST_REASON = 100


def show(verdict: Verdict, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default: with colours when that is a terminal, plain otherwise."""
    terminal.show(lambda width: _lines(verdict, width), file)


def render(verdict: Verdict, width: int = WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return terminal.text_of(_lines(verdict, width))


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return all of it as plain values; ``default=repr`` has to be given to ``json.dumps`` for odd dataset indices."""
    return {"format": "stoker-verdict", "version": _VERSION, **masked_values(asdict(verdict))}


def _lines(verdict: Verdict, width: int) -> list[Line]:
    lines = section("Verdict", [Line(verdict.headline, style=_colour(verdict))], width)
    lines += indented([*cost_lines(verdict.cost), *(Line(each, 4) for each in verdict.notes)], width)
    if verdict.loaders:
        first, *others = verdict.loaders
        lines += section("Why", [Line(each, place) for place, each in enumerate(first.why)], width)
        lines += section(
            "Evidence", [*_table(first, width - MARGIN), *_measured(first), *_others(others)], width
        )
        lines += section("Next", next_lines(first.findings), width)
    return fitted(lines)


def cost_lines(cost: Cost | None) -> list[Line]:
    """The idle share in money and energy, when prices were given."""
    if cost is None:
        return []
    parts = []
    if cost.money_per_month is not None:
        parts.append(f"{cost.money_per_month:,.2f} per month at {cost.price_per_hour:g} an hour")
    if cost.kwh_per_month is not None:
        parts.append(f"{cost.kwh_per_month:,.0f} kWh per month at {cost.watts:g} W")
    return [Line(f"Idle {cost.idle:.1%} of the time: {'; '.join(parts)}.")]


def next_lines(findings: tuple[VerdictFinding, ...]) -> list[Line]:
    """What to do, the most useful first, with the edit and what it would gain."""
    lines = []
    for number, each in enumerate(findings[:_MOST_FINDINGS], 1):
        rank = 0 if number == 1 else 5 + number
        gain = "" if each.gain is None else f"   ({each.gain})"
        if each.edit is None:
            lines.append(Line(f"{number}  {each.advice}{gain}", rank))
        else:
            lines.append(Line(f"{number}  {each.edit}{gain}", rank))
            lines.append(Line(f"   {each.advice}", max(rank, 1)))
        if each.gain is not None and number == 1:
            lines.append(Line(f"   {each.gain.how}", 9))
    return lines


def _table(loader: LoaderVerdict, width: int) -> list[Line]:
    """With as many causes as there is room for."""
    for most in (5, 4, 3, 2, 1):
        cells = table.rows(loader.causes.parts, most)
        if not cells:
            return []
        if most < 5:
            cells[0][0] = "stage"
        lines = terminal.columns(cells, width)
        if max(map(len, lines)) <= width:
            break
    return [Line(each) for each in lines]


def _measured(loader: LoaderVerdict) -> list[Line]:
    lines = [Line(each, 10 + place) for place, each in enumerate(loader.evidence)]
    if lines:
        lines[0] = lines[0]._replace(rank=2)
    lines.insert(0, Line(_workers_line(loader.crew, loader), 3))
    if any(each.index is not None for each in loader.slowest):
        lines.append(Line(_slowest(loader), 5))
    if loader.events:
        lines.append(Line(_events(loader), 4))
    return lines


def _workers_line(crew: WorkersSummary, loader: LoaderVerdict) -> str:
    rate = "" if loader.rows_per_s is None else f"{_count(loader.rows_per_s)} samples/s, "
    if not executor_kind(loader.executor).workers:
        return f"{rate}no workers"
    who = "thread" if executor_kind(loader.executor).threads else "worker"
    busy = "" if crew.busy is None else f" {crew.busy:.0%} busy"
    if crew.cpu is None or crew.runq is None or crew.off is None:
        return f"{rate}{counted(crew.count, who)}{busy}; their CPU times were not measured"
    shares = f": cpu {crew.cpu:.2f}, run-queue {crew.runq:.2f}, off {crew.off:.2f}"
    grown = crew.growth_bytes
    growth = f"; grew by {grown / 1e6:.0f} MB" if grown is not None and grown > 50e6 else ""
    return f"{rate}{counted(crew.count, who)}{busy}{shares}{growth}"


def _slowest(loader: LoaderVerdict) -> str:
    known = [each for each in loader.slowest if each.index is not None]
    names = [
        f"{str(each.index)[:24]} ({duration(each.ns / 1e9)}{f', worker {each.worker}' if each.worker >= 0 else ''})"
        for each in known[:3]
    ]
    return f"Slowest samples by index: {', '.join(names)}"


def _events(loader: LoaderVerdict) -> str:
    counts = Counter(each.kind for each in loader.events)
    kinds = ", ".join(f"{count} × {kind.replace('_', ' ')}" for kind, count in counts.most_common(4))
    return f"Events: {kinds}; last: {shorten(loader.events[-1].reason, _MOST_REASON, placeholder=' …')}"


def _others(loaders: list[LoaderVerdict]) -> list[Line]:
    lines = [Line(f"Also: {each.sentence}", 6 + place) for place, each in enumerate(loaders[:_MOST_OTHERS])]
    if len(loaders) > _MOST_OTHERS:
        lines.append(Line(f"… and {len(loaders) - _MOST_OTHERS} more loaders.", 9))
    return lines


def _colour(verdict: Verdict) -> str:
    return COLOURS[verdict.loaders[0].causes.severity] if verdict.loaders else ""


def _count(number: float) -> str:
    return f"{number / 1000:.1f}k" if number >= 1000 else f"{number:.3g}"
