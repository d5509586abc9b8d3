"""A verdict on one screen: at most 24 lines of 80 to 100 columns, which read without colour. Also as JSON.

Every line has a rank. When there are too many, those of the highest rank go first; rank 0 stays.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from dataclasses import asdict
from typing import Any, NamedTuple, TextIO

from stoker.report import table
from stoker.report.finding import Finding
from stoker.report.verdict import Cost, Crew, LoaderVerdict, Verdict

MOST_LINES = 24
_NARROWEST, _WIDEST = 80, 100
_MARGIN = 10
_VERSION = 1
_MOST_FINDINGS = 3
_MOST_OTHERS = 4
_COLOURS = {"none": "green", "low": "default", "moderate": "yellow", "high": "red"}
_ASCII = str.maketrans({"→": "->", "−": "-", "×": "x", "…": "...", "·": ".", "–": "-", "µ": "u"})


class _Line(NamedTuple):
    text: str
    rank: int = 0
    style: str = ""


def show(verdict: Verdict, file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default: with colours when that is a terminal, plain otherwise."""
    file = sys.stdout if file is None else file
    terminal = file.isatty()
    lines = _lines(verdict, _width(terminal))
    if not terminal:
        for line in lines:
            file.write(_encodable(line.text, file) + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(_encodable(line.text, file))
        if line.text[:1].strip():
            text.stylize("bold", 0, _MARGIN)
        if line.style:
            text.stylize(line.style, _MARGIN)
        console.print(text)


def render(verdict: Verdict, width: int = _WIDEST) -> str:
    """The plain text, without a newline at its end."""
    return "\n".join(line.text for line in _lines(verdict, width))


def as_json(verdict: Verdict) -> dict[str, Any]:
    """All of it as plain values; ``default=repr`` has to be given to ``json.dumps`` for odd dataset indices."""
    return {"format": "stoker-verdict", "version": _VERSION, **asdict(verdict)}


def _lines(verdict: Verdict, width: int) -> list[_Line]:
    lines = _section("Verdict", [_Line(verdict.headline, style=_colour(verdict))], width)
    lines += _indented([*_cost(verdict.cost), *(_Line(each, 4) for each in verdict.notes)], width)
    if verdict.loaders:
        first, *others = verdict.loaders
        lines += _section("Why", [_Line(each, place) for place, each in enumerate(first.why)], width)
        lines += _section("Evidence", [*_table(first), *_measured(first), *_others(others)], width)
        lines += _section("Next", _next(first.findings), width)
    return _fitted(lines)


def _section(name: str, lines: list[_Line], width: int) -> list[_Line]:
    found = _indented(lines, width)
    if found:
        found[0] = found[0]._replace(text=f"{name:{_MARGIN}}{found[0].text[_MARGIN:]}")
    return found


def _indented(lines: list[_Line], width: int) -> list[_Line]:
    """Behind the margin, and broken at the width; what continues a line keeps its rank and is indented as its text is."""
    found = []
    for line in lines:
        own = line.text[: len(line.text) - len(line.text.lstrip())]
        hang = own + ("   " if line.text.lstrip()[:2] in ("1 ", "2 ", "3 ") else "")
        broken = textwrap.wrap(
            line.text.strip(), width - _MARGIN, initial_indent=own, subsequent_indent=hang,
            replace_whitespace=False, drop_whitespace=True,
        ) if len(line.text) > width - _MARGIN else [line.text]  # fmt: skip
        found += [line._replace(text=" " * _MARGIN + each) for each in broken]
    return found


def _fitted(lines: list[_Line]) -> list[_Line]:
    """At most as many as a screen has: whole ranks go, and then whatever is last."""
    while len(lines) > MOST_LINES and any(line.rank for line in lines):
        worst = max(line.rank for line in lines)
        kept = [line for line in lines if line.rank < worst or line.text[:1].strip()]
        if len(kept) == len(lines):  # a section's first line keeps its title
            lines = [line._replace(rank=0) if line.rank == worst else line for line in lines]
        else:
            lines = kept
    return lines[:MOST_LINES]


def _cost(cost: Cost | None) -> list[_Line]:
    if cost is None:
        return []
    parts = []
    if cost.money_per_month is not None:
        parts.append(f"{cost.money_per_month:,.2f} per month at {cost.price_per_hour:g} an hour")
    if cost.kwh_per_month is not None:
        parts.append(f"{cost.kwh_per_month:,.0f} kWh per month at {cost.watts:g} W")
    return [_Line(f"Idle {cost.idle:.1%} of the time: {'; '.join(parts)}.")]


def _table(loader: LoaderVerdict) -> list[_Line]:
    cells = table.rows(loader.causes.parts)
    if not cells:
        return []
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    return [
        _Line(line[0].ljust(widths[0]) + "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True)))
        for line in cells
    ]  # fmt: skip


def _measured(loader: LoaderVerdict) -> list[_Line]:
    lines = [_Line(each, 10 + place) for place, each in enumerate(loader.evidence)]
    if lines:
        lines[0] = lines[0]._replace(rank=2)
    lines.insert(0, _Line(_crew(loader.crew, loader), 3))
    if loader.slowest:
        lines.append(_Line(_slowest(loader), 5))
    if loader.events:
        lines.append(_Line(_events(loader), 4))
    return lines


def _crew(crew: Crew, loader: LoaderVerdict) -> str:
    rate = "" if loader.rows_per_s is None else f"{_count(loader.rows_per_s)} samples/s, "
    if loader.executor == "inline":
        return f"{rate}no workers"
    who = "threads" if loader.executor == "thread" else "workers"
    busy = "" if crew.busy is None else f" {crew.busy:.0%} busy"
    if crew.cpu is None or crew.runq is None or crew.off is None:
        return f"{rate}{crew.count} {who}{busy}; their CPU times were not measured"
    shares = f": cpu {crew.cpu:.2f}, run-queue {crew.runq:.2f}, off {crew.off:.2f}"
    grown = crew.growth_bytes
    growth = f"; grew by {grown / 1e6:.0f} MB" if grown is not None and grown > 50e6 else ""
    return f"{rate}{crew.count} {who}{busy}{shares}{growth}"


def _slowest(loader: LoaderVerdict) -> str:
    names = [
        f"{str(each.index)[:24]} ({each.ns / 1e6:.3g} ms, worker {each.worker})"
        for each in loader.slowest[:3]
    ]
    return f"Slowest samples by index: {', '.join(names)}"


def _events(loader: LoaderVerdict) -> str:
    counts = Counter(each.kind for each in loader.events)
    kinds = ", ".join(f"{count} × {kind.replace('_', ' ')}" for kind, count in counts.most_common(4))
    return f"Events: {kinds}; last: {loader.events[-1].reason[:60]}"


def _others(loaders: list[LoaderVerdict]) -> list[_Line]:
    lines = [_Line(f"Also: {each.sentence}", 6 + place) for place, each in enumerate(loaders[:_MOST_OTHERS])]
    if len(loaders) > _MOST_OTHERS:
        lines.append(_Line(f"… and {len(loaders) - _MOST_OTHERS} loaders more.", 9))
    return lines


def _next(findings: tuple[Finding, ...]) -> list[_Line]:
    lines = []
    for number, each in enumerate(findings[:_MOST_FINDINGS], 1):
        rank = 0 if number == 1 else 5 + number
        gain = "" if each.gain is None else f"   ({each.gain})"
        if each.edit is None:
            lines.append(_Line(f"{number}  {each.advice}{gain}", rank))
        else:
            lines.append(_Line(f"{number}  {each.edit}{gain}", rank))
            lines.append(_Line(f"   {each.advice}", max(rank, 1)))
        if each.gain is not None and number == 1:
            lines.append(_Line(f"   {each.gain.how}", 9))
    return lines


def _colour(verdict: Verdict) -> str:
    return _COLOURS[verdict.loaders[0].causes.severity] if verdict.loaders else ""


def _width(terminal: bool) -> int:
    columns = shutil.get_terminal_size((_WIDEST, MOST_LINES)).columns if terminal else _WIDEST
    return max(_NARROWEST, min(_WIDEST, columns))


def _encodable(text: str, file: TextIO) -> str:
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_ASCII).encode("ascii", "replace").decode()
    return text


def _count(number: float) -> str:
    return f"{number / 1000:.1f}k" if number >= 1000 else f"{number:.3g}"
