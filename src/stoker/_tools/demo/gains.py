"""Computes numbers and sentences from the result of the scaling act. Pure.

A gain is rows a second over those of torch's loader without workers, of the same flavour. Of a point that was measured in several
rounds those count in which the machine was the demo's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

TORCH, STOKER = "torch", "stoker"
LOADERS = (TORCH, STOKER)
GOES_ON = 1.3
"""A curve that still gains so much behind the number of CPUs goes on; below, it has stopped."""
_ALIKE = (0.5, 0.3, 0.1)
"""Two rates that differ by less are alike: of one round, of two, of more. A CPU's own pace changes, and nobody tells."""
_SAME = "alike"
DISTURBED = 0.15
"""A share of the CPUs for others from which on a round is set aside, if there is a better one."""
_CROWDED = 0.25
"""A share of points without one good round from which on nothing is concluded from who was faster; of the CPUs, in old records."""
_UNTOLD = (
    "Other programs used the CPUs too, so the demo does not say where it bends or which loader is faster."
)


def measured(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The flavours that have something to show: without workers, and with."""
    return [
        each for each in result["flavours"] if len(each["points"]) > 1 and each["points"][0]["workers"] == 0
    ]


def quiet(shares: Sequence[float | None]) -> list[int]:
    """Return the quiet rounds, given the share of the CPUs that others had in each. None: unknown, and taken for quiet."""
    return [place for place, share in enumerate(shares) if share is None or share < DISTURBED]


def used(point: dict[str, Any], kind: str, what: str) -> list[float]:
    """What was measured of a loader in the rounds that count: the good ones, or the best where there is none."""
    seen: list[float] = point[kind][what]
    shares: list[float | None] = point.get("others") or []
    if len(shares) != len(seen):
        return seen
    good = quiet(shares) or [min(range(len(shares)), key=lambda place: shares[place] or 0.0)]
    return [seen[place] for place in good]


def gain(flavour: dict[str, Any], point: dict[str, Any], kind: str) -> float:
    """Over torch's loader without workers."""
    return float(median(used(point, kind, "rates")) / median(used(flavour["points"][0], TORCH, "rates")))


def pairs(point: dict[str, Any]) -> list[float]:
    """stoker over torch, of each round that counts."""
    both = zip(used(point, STOKER, "rates"), used(point, TORCH, "rates"), strict=False)
    return [ours / theirs for ours, theirs in both]


def ratio(point: dict[str, Any]) -> float:
    """The middle of these."""
    return float(median(pairs(point)))


def goes_on(flavour: dict[str, Any], cpus: int) -> bool | None:
    """Whether workers beyond the number of CPUs still gain, in the mean of both loaders; None: not measured.

    The last point is held against the best before it, from as many workers as CPUs on: one that was slow by chance would prove it.
    """
    points = [each for each in flavour["points"] if each["workers"] >= cpus]
    if len(points) < 2 or points[0]["workers"] != cpus:
        return None
    *before, last = points
    best = {kind: max(gain(flavour, each, kind) for each in before) for kind in LOADERS}
    return fmean(gain(flavour, last, kind) / best[kind] for kind in LOADERS) >= GOES_ON


def compared(point: dict[str, Any]) -> str:
    """stoker's rate as many times torch's, unless there is no telling them apart: a little more or less, or both in turns."""
    found = pairs(point)
    least = 1 + _ALIKE[min(len(found), len(_ALIKE)) - 1]
    if 1 / least < median(found) < least or min(found) < 1 < max(found):
        return _SAME
    return f"{median(found):.1f}×"


def crowded(result: dict[str, Any]) -> bool:
    """Whether others had so much of the machine meanwhile that it was luck who was faster."""
    shares = [
        point["others"] for flavour in measured(result) for point in flavour["points"] if "others" in point
    ]
    if not shares:
        return (result.get("others") or 0.0) >= _CROWDED
    return sum(not quiet(each) for each in shares) >= _CROWDED * len(shares)


def lines(result: dict[str, Any]) -> list[str]:
    """A table of three lines, and a sentence."""
    flavours = measured(result)
    if not flavours:
        return ["There was no time to measure anything."]
    workers = min(each["points"][-1]["workers"] for each in flavours)
    at = {each["name"]: _point(each, workers) for each in flavours}
    widths = {name: max(len(name), 6) for name in at}

    def row(label: str, cells: dict[str, str]) -> str:
        return f"{label:14}" + "".join(f"{cells[name]:>{widths[name] + 1}}" for name in at)

    found = [row(f"{workers} workers to 0", {name: name for name in at})]
    for kind in LOADERS:
        gains = {each["name"]: f"{gain(each, at[each['name']], kind):.1f}×" for each in flavours}
        found.append(row(kind, gains))
    if crowded(result):
        return [*found, _UNTOLD]
    return [*found, bend(result), f"stoker to torch: {_standing(at)}."]


def headline(result: dict[str, Any]) -> str:
    """In a sentence or two: where the curves end, and who is faster."""
    flavours = measured(result)
    if not flavours:
        return "There was no time to measure anything."
    workers = min(each["points"][-1]["workers"] for each in flavours)
    at = {each["title"]: _point(each, workers) for each in flavours}
    ends = ", ".join(
        f"{each['title']} {max(gain(each, at[each['title']], kind) for kind in LOADERS):.1f}×"
        for each in flavours
    )
    return f"{workers} workers on {_cpus(result)}, against none: {ends}. {_UNTOLD if crowded(result) else _sentence(at)}"


def bend(result: dict[str, Any], titles: bool = False) -> str:
    """Which flavours gain from more workers than CPUs, and which do not."""
    if crowded(result):
        return _UNTOLD
    known = [(each, goes_on(each, result["cpus"])) for each in measured(result)]
    going = [each["title" if titles else "name"] for each, on in known if on]
    stopped = [each["title" if titles else "name"] for each, on in known if on is False]
    cpus = _cpus(result)
    if going and stopped:
        return f"Past {cpus} {_listed(going)} {_verb(going, 'gain')} more, {_listed(stopped)} {_verb(stopped, 'do')} not."
    if going or stopped:
        return f"Past {cpus} {_listed(going or stopped)} {_verb(going or stopped, 'gain')} {'' if going else 'no '}more."
    return f"More workers than {cpus} were not tried."


def _cpus(result: dict[str, Any]) -> str:
    return f"{result['cpus']} CPUs" if result["cpus"] > 1 else "one CPU"


def _standing(at: dict[str, dict[str, Any]]) -> str:
    """Say by name which loader is faster. Those that are alike stand together."""
    words = {name: compared(point) for name, point in at.items()}
    apart = [f"{word} {name}" for name, word in words.items() if word != _SAME]
    alike = [name for name, word in words.items() if word == _SAME]
    return (
        ", ".join(apart) + ("; " if apart and alike else "") + (f"alike {', '.join(alike)}" if alike else "")
    )


def _sentence(at: dict[str, dict[str, Any]]) -> str:
    """The same as whole sentences, those first in which stoker is faster."""
    ratios = {name: ratio(point) for name, point in at.items() if compared(point) != _SAME}
    faster = [f"{each:.1f}× as fast as torch for {name}" for name, each in ratios.items() if each > 1]
    slower = [f"{1 / each:.1f}× as fast as stoker for {name}" for name, each in ratios.items() if each < 1]
    alike = [name for name in at if name not in ratios]
    found = [f"stoker is {_listed(faster)}."] if faster else []
    found += [f"torch is {_listed(slower)}."] if slower else []
    found += (
        [f"{'They are alike' if found else 'torch and stoker are alike'} for {_listed(alike)}."]
        if alike
        else []
    )
    return " ".join(found)


def _point(flavour: dict[str, Any], workers: int) -> dict[str, Any]:
    found: dict[str, Any] = [each for each in flavour["points"] if each["workers"] <= workers][-1]
    return found


def _verb(names: Sequence[str], verb: str) -> str:
    """For one flavour or several; that of the stragglers is more than one by itself."""
    return verb if len(names) > 1 or names[0] == "stragglers" else {"gain": "gains", "do": "does"}[verb]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
