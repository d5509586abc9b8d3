"""Answers what-if questions: replays the loaders of a record with other workers, windows and machines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from stoker._record.finding import duration
from stoker._record.schema import RunRecord
from stoker._runtime.simulation import predictions
from stoker._runtime.simulation.predictions import SimulationCase
from stoker._tools.render import terminal
from stoker._tools.render.terminal import MARGIN, Line, section
from stoker._tools.report.what_if.recorded_work import MOST_WINDOW, RecordedWork, recall
from stoker.arguments import DEFAULT_EXECUTOR
from stoker.errors import RecordError

USUAL = "usual"
"""The question that asks for the cases one would think of."""

_VERSION = 1
_MOST_LOADERS = 4
_KEYS = "workers, prefetch, window, cpus, step, threads, burst, order"
_CHANGE = re.compile(r"([+\-*/x×])?\s*(\d+(?:\.\d+)?)\s*(ms|s|us|µs)?")
_MOST = 10_000
_MOST_NUMBER = 10**9
"""In a question. What a larger one would be multiplied by could become infinite."""
_COLUMNS = (range(8), (0, 1, 5, 6, 7), (0, 5, 6, 7), (0, 6, 7))
"""Columns of the table, as many as there is room for."""
_UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, None: 1e6}


@dataclass(frozen=True, slots=True)
class WhatIfChange:
    """A number that is set, or one that is applied to what there is."""

    sign: str
    number: float
    unit: str | None = None

    def of(self, value: float) -> float:
        if self.sign == "+":
            return value + self.number
        if self.sign == "-":
            return value - self.number
        if self.sign == "/":
            return value / self.number
        return value * self.number if self.sign else self.number


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """As it was asked, and what it changes. Empty: the usual cases."""

    text: str
    changes: dict[str, WhatIfChange]
    in_order: bool | None = None

    def of(self, case: SimulationCase) -> SimulationCase:
        """The case with these changes. Workers take their share of the window along unless it is set as well.

        Raises RecordError for more than a replay goes through in a moment.
        """
        setting, demand = case.setting, case.demand
        workers, window, cpus = setting.workers, case.window, case.cpus
        per_worker = setting.prefetch or 2
        for name, change in self.changes.items():
            if name == "workers":
                workers = max(0, round(change.of(setting.workers)))
                window = workers * per_worker
            elif name == "prefetch":
                window = workers * max(1, round(change.of(per_worker)))
            elif name == "window":
                window = max(1, round(change.of(window or 1)))
            elif name == "cpus":
                cpus = max(0.1, change.of(case.cpus))
            elif name == "threads":
                setting = replace(setting, threads=max(1, round(change.of(setting.threads))))
            elif name == "burst":
                burst = max(1, round(change.of(demand.burst)))
                demand = replace(
                    demand, burst=burst, step_ns=demand.step_ns * burst, cpu_ns=demand.cpu_ns * burst
                )
            else:
                scale = _UNITS_NS[change.unit] if change.sign in ("", "+", "-") else 1.0
                step_ns = max(0.0, replace(change, number=change.number * scale).of(demand.step_ns))
                demand = replace(demand, step_ns=int(step_ns), cpu_ns=min(demand.cpu_ns, int(step_ns)))
        if max(workers, setting.threads, demand.burst) > _MOST or (window or 0) > MOST_WINDOW:
            raise RecordError(
                f"{self.text}: a replay goes to {_MOST} workers, threads and batches in a burst, and a window of {MOST_WINDOW}"
            )
        executor = DEFAULT_EXECUTOR if workers and not setting.kind.workers else setting.executor
        setting = replace(
            setting, workers=workers, executor=executor, prefetch=setting.prefetch or per_worker
        )
        in_order = case.in_order if self.in_order is None else self.in_order
        return SimulationCase(setting, cpus, demand, in_order, window, self.text)


def parse(text: str) -> WhatIfQuestion:
    """ "workers=8,window=32,cpus=+4,step=/2,order=any". Raises ValueError that says what is wrong."""
    if text == USUAL:
        return WhatIfQuestion(text, {})
    changes: dict[str, WhatIfChange] = {}
    in_order = None
    # Windows are counted for the workers that they are asked with: these come first.
    for each in sorted(
        filter(None, text.split(",")), key=lambda part: not part.strip().startswith("workers")
    ):
        name, _, value = (part.strip() for part in each.partition("="))
        if name == "order":
            if value not in ("any", "in"):
                raise ValueError(f"order is 'any' or 'in', not {value!r}")
            in_order = value == "in"
            continue
        match = _CHANGE.fullmatch(value)
        by_nothing = match is not None and match[1] == "/" and not float(match[2])
        if match is not None and float(match[2]) > _MOST_NUMBER:
            raise ValueError(f"the number of {name} is more than {_MOST_NUMBER}: say workers=8")
        if name not in _KEYS.split(", ") or match is None or by_nothing or (match[3] and name != "step"):
            raise ValueError(
                f"cannot read {each.strip()!r}: say workers=8,window=32,cpus=+4,step=/2 (of {_KEYS})"
            )
        changes[name] = WhatIfChange(
            "*" if match[1] in ("x", "×") else match[1] or "", float(match[2]), match[3]
        )
    if not changes and in_order is None:
        raise ValueError(f"nothing is asked: say workers=8,window=32,cpus=+4,step=/2 (of {_KEYS})")
    return WhatIfQuestion(text, changes, in_order)


def answer(record: RunRecord, questions: Sequence[WhatIfQuestion]) -> dict[str, Any]:
    """As plain values. Raises RecordError when no loader handed out a batch."""
    known = [found for each in record.loaders if (found := recall(each, record.machine)) is not None]
    if not known:
        raise RecordError("no loader of this record handed out a batch: there is nothing to replay")
    known.sort(key=lambda each: -each.stall)
    return {
        "format": "stoker-what-if",
        "version": _VERSION,
        "loaders": [_answered(each, questions) for each in known],
    }


def _answered(found: RecordedWork, questions: Sequence[WhatIfQuestion]) -> dict[str, Any]:
    now = replace(found.case, name="as it is").plain(found.work)
    cases = []
    for question in questions:
        if question.text == USUAL:
            cases += predictions.what_if(found.case, found.work)[1:]
        else:
            cases.append(question.of(found.case).plain(found.work))
    error = predictions.error_of([("as it is", now["interval_ns"], found.interval_ns)])
    return {
        "name": found.name,
        "measured": {"interval_ns": found.interval_ns, "stall": found.stall},
        "replayed": now,
        "error": error["bias"],
        "cases": cases,
        "batches": len(found.work.batch_ns),
        "notes": list(found.notes),
    }


def show(answered: dict[str, Any], file: TextIO | None = None) -> None:
    """Write it to a file, standard output by default."""
    terminal.show(lambda width: lines(answered, width), file)


def lines(answered: dict[str, Any], width: int) -> list[Line]:
    """A table for each loader, the one that waits most first."""
    found: list[Line] = []
    for loader in answered["loaders"][:_MOST_LOADERS]:
        found += section("What if", [Line(each) for each in _table(loader, width - MARGIN)], width)
        found += section("Note", [Line(each) for each in _notes(loader)], width)
    left = len(answered["loaders"]) - _MOST_LOADERS
    return found + ([Line(f"… and {left} loaders more: --json has them all.")] if left > 0 else [])


def _table(loader: dict[str, Any], room: int) -> list[str]:
    """Where there is no room for all columns, the settings go, which the names say too, and then the interval."""
    measured, now = loader["measured"], loader["replayed"]
    head = [loader["name"], "workers", "window", "CPUs", "step", "interval", "stall", "against now"]
    body = [
        [
            "measured",
            *_cells(now)[:4],
            duration(measured["interval_ns"] / 1e9),
            f"{measured['stall']:.1%}",
            "",
        ]
    ]
    for case in (now, *loader["cases"]):
        change = case["interval_ns"] / now["interval_ns"] - 1 if now["interval_ns"] else 0.0
        told = "" if case is now else f"{change:+.0%}" if abs(change) >= 0.005 else "same"
        body.append([case["name"], *_cells(case), told])
    for kept in _COLUMNS:
        lines = terminal.columns([[row[place] for place in kept] for row in (head, *body)], room)
        if max(map(len, lines)) <= room:
            break
    return lines


def _cells(case: dict[str, Any]) -> list[str]:
    window = "-" if not case["workers"] else f"{case['window']}{'' if case['in_order'] else ' any'}"
    return [
        str(case["workers"]),
        window,
        f"{case['cpus']:.3g}",
        duration(case["step_ns"] / 1e9),
        duration(case["interval_ns"] / 1e9),
        f"{case['stall']:.1%}",
    ]


def _notes(loader: dict[str, Any]) -> list[str]:
    error = loader["error"]
    own = (
        ""
        if error is None
        else f"The replay of what was measured is off by {error:+.1%}: read the others with that in mind."
    )
    return [each for each in (own, *loader["notes"]) if each]
