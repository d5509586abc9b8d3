"""Settings and numbers in words, for all forms."""

from __future__ import annotations

from stoker._record.finding import capitalised, counted, duration, size
from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune import knobs
from stoker._tools.tune.result import Tuning

HEADS = ("setting", "a batch every", "to now", "stall", "CPU", "memory", "replayed")
"""The heads of the table of points."""
_MOST_POINTS = 6
_LEAST_LOSS = 0.03
_ASKED = ("4 more cores and workers", "an accelerator twice as fast")
"""The predictions that a screen shows; the JSON form has more."""


def setting_name(setting: Setting) -> str:
    """A setting in a few words: "3 workers × 4, spawn"."""
    torchs = "torch's: " if setting.engine == "torch" else ""
    parts = [knob.words(setting) for knob in knobs.KNOBS if setting.workers or not knob.needs_workers]
    return torchs + ", ".join(filter(None, parts))


def saving_text(tuning: Tuning) -> str:
    """The saving, with its interval; "" if nothing was compared or nothing changes."""
    if tuning.gain is None or not tuning.changed:
        return ""
    gain = tuning.gain
    if gain.low < 0:
        return (
            f"{change(gain.middle)} of the step's time, and not for certain: between {-gain.low:.0%} more "
            f"and {abs(gain.high):.0%} {'less' if gain.high >= 0 else 'more'} (90 %)"
        )
    return f"{change(gain.middle)} of the step's time (90 %: {change(gain.low)} to {change(gain.high)})"


def row(point: Point, tuning: Tuning, longest: int = 80) -> tuple[str, ...]:
    """A point under HEADS; "–" for a value that was not measured. The setting takes at most ``longest`` characters."""
    mark = (
        " (now)"
        if point.setting == tuning.baseline
        else " (take)"
        if point.setting == tuning.recommended
        else ""
    )
    name = setting_name(point.setting)
    if len(name) + len(mark) > longest:
        name = name[: longest - len(mark) - 1].rstrip(", ") + "…"
    name += mark
    if point.failure:
        return (name, "failed", *["–"] * 5)
    memory = size(point.memory_bytes) if point.memory_bytes else "–"
    predicted = "–" if point.predicted_ns is None else duration(point.predicted_ns / 1e9)
    return (
        name,
        duration(interval_ns(point, tuning) / 1e9),
        _ratio(point.ratio),
        f"{point.stall:.0%}",
        duration(point.cpu_ns / 1e9),
        memory,
        predicted,
    )


def interval_ns(point: Point, tuning: Tuning) -> float:
    """The point's time in the baseline's rounds, from the ratio, which compares within rounds.

    Settings ran in different rounds. If the machine was slower in some of them, two columns would contradict each other.
    """
    base = next((each for each in tuning.points if each.setting == tuning.baseline and each.blocks), None)
    if base is None or not point.blocks or not point.ratio.high < float("inf"):
        return point.interval_ns.middle
    return base.interval_ns.middle * point.ratio.middle


def shown_points(tuning: Tuning) -> list[Point]:
    """The points worth a row, the fastest first. The baseline and the recommended setting are always among them."""
    must = (tuning.baseline, tuning.recommended)
    ranked = sorted(tuning.points, key=lambda each: (bool(each.failure), interval_ns(each, tuning)))
    kept = [each for each in ranked if each.setting in must]
    others = [each for each in ranked if each.setting not in must][: _MOST_POINTS - len(kept)]
    return [each for each in ranked if each in kept or each in others]


def cache_lines(tuning: Tuning) -> list[str]:
    """What a cache would gain, with its numbers, and the line to type; empty where it gains nothing."""
    found, gain = tuning.cache, tuning.cache_gain
    if found is None or gain is None:
        return []
    gained = (
        f"{change(gain)} of the step's time"
        if tuning.demand.step_ns
        else f"{1 / max(1e-3, 1 - gain):.1f} × the samples"
    )
    return [f"{capitalised(found.text)}: about {gained}, by the replay.", found.edit]


def demand_text(tuning: Tuning) -> str:
    """The training loop's time for a step, and its source."""
    demand = tuning.demand
    if not demand.step_ns:
        return "What a training step takes is not known: the fastest setting wins."
    source = {"step-ms": "as given", "step": "measured with your step", "record": "from the record of a run"}
    burst = f", {demand.burst} batches at once" if demand.burst > 1 else ""
    ceiling = ""
    if tuning.ceiling is not None:
        ceiling = (
            f"; data costs {max(0.0, tuning.ceiling):.0%} of the step now, which is the most there is to gain"
        )
    return f"A step takes {duration(demand.step_ns / 1e9)} ({source.get(demand.source, demand.source)}){burst}{ceiling}."


def work_text(tuning: Tuning) -> str:
    """One worker's time for a batch; "" if it was not measured."""
    work = tuning.work
    if work is None or not work.batch_ns:
        return ""
    parts = [
        f"a batch takes one worker {duration(work.typical_ns / 1e9)}",
        f"{1 - work.off_share:.0%} of it on a CPU",
    ]
    if work.batch_bytes:
        parts.append(f"{size(work.batch_bytes)} each")
    return ", ".join(parts)


def host_text(tuning: Tuning) -> str:
    """The machine; "" if it was not examined."""
    host = tuning.host
    if host is None:
        return ""
    ranks = f" for each of {host.ranks} local ranks" if host.ranks > 1 else ""
    return f"{'is 1 CPU' if host.cpus == 1 else f'are {host.cpus:g} CPUs'}{ranks}" + (
        f" ({host.reason})" if host.reason else ""
    )


def scaling_text(tuning: Tuning) -> str:
    """The number of workers from which on more gain little, from the measured curve; "" if there is none."""
    curve = tuning.curve or {}
    knee, loss, at = curve.get("knee"), curve.get("loss"), curve.get("loss_at")
    parts = [f"more than {counted(knee, 'worker')} gain little" if isinstance(knee, int) and knee > 0 else ""]
    if isinstance(loss, float) and loss >= _LEAST_LOSS:
        parts.append(f"{at} lose {loss:.0%} of the throughput of {curve.get('best')}")
    text = "; ".join(each for each in parts if each)
    return f"{capitalised(text)}." if text else ""


def prediction_text(tuning: Tuning) -> str:
    """The replay's predictions for other machines and loops, and its error; "" if there are none."""
    oracle = tuning.oracle or {}
    error, cases = oracle.get("error"), oracle.get("what_if")
    if not isinstance(error, dict) or not error.get("points") or not isinstance(cases, list):
        return ""
    predicted = [
        f"{each['name']} {duration(each['interval_ns'] / 1e9)}"
        for each in cases
        if each.get("name") in _ASKED and isinstance(each.get("interval_ns"), int | float)
    ]
    points = counted(error["points"], "point")
    listed = f"; it says: {', '.join(predicted)}" if predicted else ""
    return f"The replay was off by {error['median']:.0%} (the median of {points}){listed}."


def _ratio(ratio: Interval) -> str:
    return f"{ratio.middle:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def change(share: float) -> str:
    """A share of the time that is saved, with its sign: "−12%" for 0.12."""
    return f"{'−' if share >= 0 else '+'}{abs(share):.0%}"
