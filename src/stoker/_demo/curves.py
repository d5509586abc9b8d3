"""What the scaling act measured, in words, tables and curves. Pure: a result of ``acts.scaling``, as plain JSON, is all there is.

A gain is rows a second over those of torch's loader without workers, of the same flavour.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from stoker.report.page.section import Beside, Chart, Part, Prose, Section, Table
from stoker.report.page.theme import colour

TORCH, STOKER = "torch", "stoker"
LOADERS = (TORCH, STOKER)
IDEAL = "ideal"
GOES_ON = 1.3
"""A curve that still gains so much behind the number of CPUs goes on; below, it has stopped."""
_ALIKE = 0.1
"""Two rates that differ by less are alike, whatever single rounds say."""
_COMPUTE = ("jpeg", "python")


def measured(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The flavours that have something to show: without workers, and with."""
    return [
        each for each in result["flavours"] if len(each["points"]) > 1 and each["points"][0]["workers"] == 0
    ]


def gain(flavour: dict[str, Any], point: dict[str, Any], kind: str) -> float:
    """Over torch's loader without workers."""
    return float(median(point[kind]["rates"]) / median(flavour["points"][0][TORCH]["rates"]))


def ratio(point: dict[str, Any]) -> float:
    """stoker over torch, of rounds in which both had their turn."""
    pairs = zip(point[STOKER]["rates"], point[TORCH]["rates"], strict=False)
    return float(median(ours / theirs for ours, theirs in pairs))


def goes_on(flavour: dict[str, Any], cpus: int) -> bool | None:
    """Whether workers beyond the number of CPUs still gain, with either loader; None: not measured."""
    points = {each["workers"]: each for each in flavour["points"]}
    last = flavour["points"][-1]
    if cpus not in points or last["workers"] <= cpus:
        return None
    return max(gain(flavour, last, kind) / gain(flavour, points[cpus], kind) for kind in LOADERS) >= GOES_ON


def compared(point: dict[str, Any]) -> str:
    """stoker's rate as many times torch's, unless there is no telling them apart."""
    found = ratio(point)
    if abs(found - 1) < _ALIKE:
        return "alike"
    return f"{found:.1f}×"


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
    return [*found, _bend(result), f"stoker beside torch: {_standing(at)}."]


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
    return f"{workers} workers on {result['cpus']} CPUs gain: {ends}. stoker beside torch: {_standing(at)}."


def sections(result: dict[str, Any]) -> list[Section]:
    """The curves, the first batches, and what too many workers cost."""
    flavours = measured(result)
    parts: list[Part] = [
        Prose(
            f"Rows a second, as many times those of torch's loader without workers. Batches of {result['batch']},"
            f" persistent workers, torch's own prefetching, a consumer that drops what it gets. Points are medians of"
            f" {result['rounds'] or 'an unfinished'} {'round' if result['rounds'] in (0, 1) else 'rounds'};"
            " bars are the lowest and the highest."
        ),
        Prose(_bend(result, titles=True)),
        *(
            Prose(f"{_capital(each['title'])} was left out. {each['left_out']}")
            for each in result["flavours"]
            if each["left_out"]
        ),
    ]
    if not flavours:
        return [
            Section("scaling", "What workers gain", (*parts, Prose("There was no time to measure anything.")))
        ]
    parts.append(
        Beside(tuple((_capital(each["title"]), (_chart(each, result["cpus"]),)) for each in flavours))
    )
    found = [Section("scaling", "What workers gain", tuple(parts))]
    crowd = _crowd(flavours, result["cpus"])
    return found if crowd is None else [*found, crowd]


def _chart(flavour: dict[str, Any], cpus: int) -> Chart:
    counts = [str(each["workers"]) for each in flavour["points"]]
    values = [_value(flavour, point, kind) for point in flavour["points"] for kind in LOADERS]
    ideal = [
        {"workers": str(each["workers"]), "loader": IDEAL, "gain": max(1, each["workers"])}
        for each in flavour["points"]
    ]
    x = {"field": "workers", "type": "ordinal", "sort": counts, "title": "workers", "axis": {"labelAngle": 0}}
    series = {
        "field": "loader",
        "type": "nominal",
        "title": None,
        "scale": {
            "domain": [TORCH, STOKER, IDEAL],
            "range": [colour(TORCH), colour(STOKER), colour("quiet")],
        },
    }
    y = {"field": "gain", "type": "quantitative", "title": "gain over no workers", "scale": {"zero": True}}
    told = [
        {"field": "loader", "title": "loader"},
        {"field": "workers", "title": "workers"},
        {"field": "gain", "title": "gain", "format": ".2f"},
        {"field": "rate", "title": "rows a second", "format": ",.0f"},
        {"field": "first_ms", "title": "first batch, ms", "format": ",.0f"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": ideal},
            "mark": {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y, "color": series},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {
                "x": x,
                "y": {"field": "low", "type": "quantitative"},
                "y2": {"field": "high"},
                "color": series,
            },
        },
        {
            "mark": {"type": "line", "point": {"size": 60}, "strokeWidth": 2.5},
            "encoding": {"x": x, "y": y, "color": series, "tooltip": told},
        },
    ]
    if str(cpus) in counts:
        layers.insert(0, {
            "data": {"values": [{"workers": str(cpus), "note": f"{cpus} CPUs"}]},
            "layer": [
                {"mark": {"type": "rule", "strokeDash": [2, 3], "opacity": 0.6}, "encoding": {"x": x}},
                {
                    "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 4, "y": 2},
                    "encoding": {"x": x, "text": {"field": "note"}},
                },
            ],
        })  # fmt: skip
    last = flavour["points"][-1]
    summary = (
        f"{_capital(flavour['title'])}, rows of {flavour['row_ms']:.1f} ms: with {last['workers']} workers torch gains"
        f" {gain(flavour, last, TORCH):.1f}×, stoker {gain(flavour, last, STOKER):.1f}×."
    )
    spec = {"data": {"values": values}, "layer": layers}
    title = f"{flavour['row_ms']:.1f} ms a row"
    return Chart(f"scaling-{flavour['name']}", title, summary, spec, _table(flavour))


def _value(flavour: dict[str, Any], point: dict[str, Any], kind: str) -> dict[str, Any]:
    base = median(flavour["points"][0][TORCH]["rates"])
    rates = point[kind]["rates"]
    return {
        "workers": str(point["workers"]),
        "loader": kind,
        "gain": round(median(rates) / base, 3),
        "low": round(min(rates) / base, 3),
        "high": round(max(rates) / base, 3),
        "rate": round(median(rates), 1),
        "first_ms": round(median(point[kind]["first_ms"]), 1),
    }


def _table(flavour: dict[str, Any]) -> Table:
    columns = (
        "workers",
        "torch, rows/s",
        "stoker, rows/s",
        "torch",
        "stoker",
        "first batch: torch",
        "stoker",
        "stoker to torch",
    )
    rows = []
    for point in flavour["points"]:
        seen = [_value(flavour, point, kind) for kind in LOADERS]
        rows.append((
            str(point["workers"]),
            *(f"{each['rate']:,.0f}" for each in seen),
            *(f"{each['gain']:.2f}×" for each in seen),
            *(f"{each['first_ms']:.0f} ms" for each in seen),
            compared(point),
        ))  # fmt: skip
    return Table(f"{_capital(flavour['title'])} by workers", columns, tuple(rows), frozenset(range(7)))


def _crowd(flavours: Sequence[dict[str, Any]], cpus: int) -> Section | None:
    """What computing costs with as many workers as CPUs, and with more."""
    rows = []
    for flavour in flavours:
        if flavour["name"] not in _COMPUTE:
            continue
        for point in flavour["points"]:
            if point["workers"] < cpus or not all(point[kind]["cpu_ms"] for kind in LOADERS):
                continue
            for kind in LOADERS:
                seen = point[kind]
                rows.append((
                    flavour["title"], str(point["workers"]), kind, f"{gain(flavour, point, kind):.2f}×",
                    f"{median(seen['cpu_ms']):.2f} ms", f"{median(seen['switches']):,.0f}", f"{median(seen['first_ms']):.0f} ms",
                ))  # fmt: skip
    if not rows:
        return None
    text = (
        f"There are {cpus} CPUs to compute on, and workers beyond that take turns on them. The table has what that gains, and"
        " what it costs: CPU time, how often workers are taken off a CPU that another wants, and how late the first batch is."
    )
    columns = (
        "flavour",
        "workers",
        "loader",
        "gain",
        "CPU a row",
        "taken off a CPU, per 1000 rows",
        "first batch",
    )
    table = Table("Computing, by workers", columns, tuple(rows), frozenset({1, 3, 4, 5, 6}))
    return Section("oversubscription", "More workers than CPUs", (Prose(text), table))


def _bend(result: dict[str, Any], titles: bool = False) -> str:
    """Which flavours gain from more workers than CPUs, and which do not."""
    known = [(each, goes_on(each, result["cpus"])) for each in measured(result)]
    going = [each["title" if titles else "name"] for each, on in known if on]
    stopped = [each["title" if titles else "name"] for each, on in known if on is False]
    cpus = f"the {result['cpus']} CPUs" if result["cpus"] > 1 else "the one CPU"
    if going and stopped:
        return f"Past {cpus} {_listed(going)} {_verb(going, 'gain')} more, {_listed(stopped)} {_verb(stopped, 'do')} not."
    if going or stopped:
        return f"Past {cpus} {_listed(going or stopped)} {_verb(going or stopped, 'gain')} {'' if going else 'no '}more."
    return f"More workers than {cpus} were not tried."


def _standing(at: dict[str, dict[str, Any]]) -> str:
    """Who is faster, by name: those that are alike together."""
    words = {name: compared(point) for name, point in at.items()}
    apart = [f"{word} {name}" for name, word in words.items() if word != "alike"]
    alike = [name for name, word in words.items() if word == "alike"]
    return "; ".join([*apart, *([f"alike: {', '.join(alike)}"] if alike else [])])


def _point(flavour: dict[str, Any], workers: int) -> dict[str, Any]:
    found: dict[str, Any] = [each for each in flavour["points"] if each["workers"] <= workers][-1]
    return found


def _verb(names: Sequence[str], verb: str) -> str:
    """For one flavour or several; that of the stragglers is more than one by itself."""
    return verb if len(names) > 1 or names[0] == "stragglers" else {"gain": "gains", "do": "does"}[verb]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
