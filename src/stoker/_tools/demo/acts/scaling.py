"""Measures rows a second by the number of workers, for torch's loader and stoker's, on each flavour of the dataset.

What waits goes on past the number of CPUs; what computes stops there, and more workers only get in each other's way. Both kinds are
measured in turns, and who goes first changes, so that what else the machine does falls on both.
"""

from __future__ import annotations

import time
from typing import Any

from stoker._host.memory_available import Gauge
from stoker._tools.demo import curves, gains
from stoker._tools.demo.act import ActContext
from stoker._tools.demo.other_load import OtherLoad
from stoker._tools.render.section import Section

TITLE = "Scaling"
SECONDS = (10.0, 78.0)

_ROW_S = {"sleep": 2e-3, "jpeg": 2e-3, "python": 2e-3, "stragglers": 0.5e-3}
_MOST_COUNTS = 6
_ROUNDS = (1, 3)
"""Quick, and whole."""
_AGAIN = 2
"""So often a point is measured again because others disturbed it: some are disturbed whenever they are measured."""
_WINDOW_S = (0.12, 0.6)
"""Shortest and longest count."""
_SETTLE_S = (0.15, 0.25)
_PATIENCE = 1.4
"""So many times its budget the first round may take: half of a curve shows nothing."""
_WORKER_BYTES = 64 << 20
"""What a worker takes, about: not more of them are started than fit into half of what is free."""


def run(stage: ActContext) -> dict[str, Any]:
    """Measure it: rounds as the budget allows, the first from few workers to many, so that what is left out is the far end.

    A round of a point in which others had the CPUs is repeated while there is time.
    """
    from stoker._tools.demo import flavours
    from stoker._tools.demo.loader_rate import BATCH

    made: dict[str, Any] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, (title, maker) in flavours.MAKERS.items():
        entry: dict[str, Any] = {"name": name, "title": title, "row_ms": None, "left_out": None, "points": {}}
        stage.tell(f"sizing {title}", 0.0)
        try:
            made[name] = maker(_ROW_S[name])
            entry["row_ms"] = made[name].row_s * 1e3
        except flavours.FlavourMissing as missing:
            entry["left_out"] = str(missing)
        found[name] = entry
    counted = counts(stage.cpus, quick=stage.quick, available_bytes=Gauge().read().available_bytes)
    others = OtherLoad()
    stopped: KeyboardInterrupt | None = None
    rounds = 0
    try:
        rounds = _rounds(stage, made, found, counted)
    except KeyboardInterrupt as error:  # a minute of measuring is not to be lost
        stopped = error
    for entry in found.values():
        entry["points"] = list(entry["points"].values())
    result = {
        "cpus": stage.cpus,
        "batch": BATCH,
        "counts": counted,
        "rounds": rounds,
        "others": others.share(),
        "flavours": list(found.values()),
    }
    if stopped is not None and not gains.measured(result):
        raise stopped
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """The far end of the curves, as a table, and where they bend."""
    return gains.lines(result)


def headline(result: dict[str, Any]) -> str:
    """What the demo comes down to."""
    return gains.headline(result)


def sections(result: dict[str, Any]) -> list[Section]:
    """A curve for each flavour, and what too many workers cost."""
    return curves.sections(result)


def counts(cpus: int, *, quick: bool, available_bytes: int | None = None) -> list[int]:
    """How many workers are tried: none, a few in between, as many as CPUs, and more than that."""
    top = (2 if quick or cpus > 4 else 4) * cpus
    if available_bytes is not None:
        top = max(cpus, min(top, available_bytes // 2 // _WORKER_BYTES))
    doubled = [2**power for power in range(1, top.bit_length()) if 2**power <= top]
    found = sorted({cpus, top} if quick else {cpus, top, *doubled})
    while len(found) > _MOST_COUNTS - 1:
        spare = [place for place in range(1, len(found) - 1) if found[place] != cpus]
        found.pop(min(spare, key=lambda place: found[place + 1] / found[place - 1]))
    return [0, *found]


def _rounds(
    stage: ActContext, made: dict[str, Any], found: dict[str, dict[str, Any]], counted: list[int]
) -> int:
    """Measure until every point has its good rounds, or was tried often enough, or the budget is spent; how many all have."""
    from stoker._tools.demo import flavours

    began = time.monotonic()
    wanted, settle_s = (each[0 if stage.quick else 1] for each in (_ROUNDS, _SETTLE_S))
    turns = {(workers, name): 0 for workers in counted for name in made}
    good = dict.fromkeys(turns, 0)
    overhead_s = 0.1 + settle_s
    while due := [turn for turn in turns if good[turn] < wanted and turns[turn] < wanted + _AGAIN]:
        # Whoever was disturbed is measured again before the others get another round.
        workers, name = min(due, key=lambda turn: (good[turn], turns[turn]))
        spent_s = time.monotonic() - began
        if spent_s >= stage.budget_s * (1 if all(turns.values()) else _PATIENCE):
            break
        waiting = len(gains.LOADERS) * sum(int(wanted) - good[turn] for turn in due)
        window_s = max(_WINDOW_S[0], min(_WINDOW_S[1], (stage.budget_s - spent_s) / waiting - overhead_s))
        first = (turns[workers, name] + counted.index(workers) + list(made).index(name)) % 2
        stage.tell(f"{flavours.MAKERS[name][0]}, {workers} workers", spent_s / stage.budget_s)
        share = _measure(found[name]["points"], made[name], workers, first, window_s, settle_s)
        turns[workers, name] += 1
        good[workers, name] += bool(gains.quiet([share]))
        took_s = (time.monotonic() - began - spent_s) / len(gains.LOADERS)
        overhead_s += 0.2 * (took_s - window_s - overhead_s)
    return min(turns.values(), default=0)


def _measure(
    points: dict[int, Any], dataset: Any, workers: int, first: int, window_s: float, settle_s: float
) -> float | None:
    """Both loaders, one after the other, as one round of a point; what others had of the CPUs meanwhile."""
    from stoker._tools.demo.loader_rate import measure_rate

    others = OtherLoad()
    order = gains.LOADERS[::-1] if first else gains.LOADERS
    seen = {kind: measure_rate(kind, dataset, workers, window_s, settle_s) for kind in order}
    share = others.share()
    empty: dict[str, Any] = {
        each: {"rates": [], "first_ms": [], "cpu_ms": [], "switches": []} for each in gains.LOADERS
    }
    point = points.setdefault(workers, {"workers": workers, "others": [], **empty})
    point["others"].append(share)
    for kind, each in seen.items():
        point[kind]["rates"].append(each.rate)
        point[kind]["first_ms"].append(each.first_s * 1e3)
        if each.row_cpu_s is not None and each.row_switches is not None:
            point[kind]["cpu_ms"].append(each.row_cpu_s * 1e3)
            point[kind]["switches"].append(each.row_switches * 1e3)
    return share
