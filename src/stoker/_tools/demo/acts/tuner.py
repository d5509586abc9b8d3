"""Tunes torch's loader without workers, with a training step, on one flavour of the demo's dataset.

The result is what ``stoker tune --json`` writes. No profile is left behind: the dataset is nobody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker._record.finding import counted, duration
from stoker._tools.demo.act import ActContext
from stoker._tools.render.section import Chart, Code, Part, Prose, Section, Table
from stoker._tools.render.theme import colour
from stoker._tools.report.page import vega
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.sections import curve
from stoker._tools.report.page.terms import edited

if TYPE_CHECKING:
    from stoker._runtime.simulation.point import Point
    from stoker._tools.tune.result import Tuning

TITLE = "The tuner's verdict"
SECONDS = (5.5, 20.0)

_ROW_S = 0.001
_BATCH = 32
_STEP_S = 0.02
"""A training step that waits for an accelerator: shorter than one process takes for a batch, longer than two."""
_SAMPLES = 1 << 16
_LEAST_S = 4.5
"""However late it is: with less there is no verdict."""


def run(stage: ActContext) -> dict[str, Any]:
    """One tuning, in the tuner's own processes."""
    return tuned(stage, _SAMPLES, max(_LEAST_S, stage.budget_s - 0.5))


def tuned(stage: ActContext, samples: int, budget_s: float) -> dict[str, Any]:
    """Tune the flavour that decodes JPEGs, or pure Python where there is no decoder."""
    import torch.utils.data

    import stoker
    from stoker._tools.demo import flavours
    from stoker._tools.tune.forms.data import as_json

    stage.tell("", 0.0)
    dataset: Any
    try:
        flavour, dataset = "JPEGs are decoded", flavours.Decoding(_ROW_S, samples)
    except flavours.FlavourMissing:
        flavour, dataset = "Python computes", flavours.Computing(_ROW_S, samples)
    loader: Any = torch.utils.data.DataLoader(dataset, batch_size=_BATCH, shuffle=True)
    tuning = stoker.tune(
        loader,
        step_s=_STEP_S,
        budget_s=budget_s,
        save=False,
        progress=lambda what, share, _: stage.tell(what, share),
    )
    if tuning.stopped == "interrupted":
        raise KeyboardInterrupt
    return {"flavour": flavour, "tuning": as_json(tuning)}


def lines(result: dict[str, Any]) -> list[str]:
    """What to take, and what that saves."""
    from stoker._tools.tune.forms import words

    tuning = _read(result)
    step = f"a step of {duration(tuning.demand.step_ns / 1e9)}" if tuning.demand.step_ns else "any step"
    head = f"{result['flavour']}, {step}"
    if tuning.failure:
        return [f"{head}: could not be tuned", tuning.failure[:70]]
    if len(_measured(tuning)) < 2:
        return [f"{head}: no time for a verdict"]
    if not tuning.changed:
        return [f"{head}: {words.setting_name(tuning.baseline)}, as it is"]
    found = [f"{head}: take {words.setting_name(tuning.recommended)}"]
    if tuning.gain is not None:
        gain = tuning.gain
        sure = "" if tuning.separated else "; others may be as good"
        found.append(
            f"{words.change(gain.middle)} of the step's time ({words.change(gain.low)} to {words.change(gain.high)}){sure}"
        )
    return found


def sections(result: dict[str, Any]) -> list[Section]:
    """The verdict with its reasons, the settings that raced, and what to type."""
    tuning = _read(result)
    now = "torch's `DataLoader` without workers" if tuning.baseline.engine == "torch" else "a `DataLoader`"
    parts: list[Part] = [
        Prose(
            f"`stoker tune` was given {now}, whose samples take {duration(_ROW_S)} each ({result['flavour']}), and a training "
            f"step of {duration(tuning.demand.step_ns / 1e9)}. It had {tuning.spent_s:.0f} s."
        ),
        Prose(tuning.failure or tuning.verdict),
    ]
    if tuning.why:
        parts.append(Prose(" ".join(tuning.why)))
    if len(_measured(tuning)) > 1:
        parts.append(_chart(tuning))
        scaling = curve.section(Material((), tunings=({**result["tuning"], "target": "this loader"},)))
        parts += scaling.parts if scaling is not None else ()
    if tuning.edits:
        parts += [
            Prose("What to type:"),
            Code("\n".join(edited(each.after, each.before, each.site) for each in tuning.edits), "python"),
        ]
    if tuning.warnings:
        parts.append(Prose("Where this may not carry over: " + " ".join(tuning.warnings)))
    parts += [Prose("On your own loader:"), Code("stoker tune train.py:loader", "shell")]
    return [Section("demo-tuner", TITLE, tuple(parts))]


def _chart(tuning: Tuning) -> Chart:
    """A bar for every setting that was run, with the interval that holds its time with 90 % probability."""
    from stoker._tools.tune.forms import words

    kinds = ("as it is now", "to take", "also tried")
    values = []
    rows = []
    for point in sorted(_measured(tuning), key=lambda each: each.interval_ns.middle):
        kind = kinds[
            0 if point.setting == tuning.baseline else 1 if point.setting == tuning.recommended else 2
        ]
        interval = point.interval_ns
        values.append(
            {
                "setting": words.setting_name(point.setting),
                "kind": kind,
                "ms": interval.middle / 1e6,
                "low": interval.low / 1e6,
                "high": interval.high / 1e6,
                "stall": point.stall,
            }
        )
        rows.append(
            (
                words.setting_name(point.setting),
                kind,
                duration(interval.middle / 1e9),
                f"{point.ratio.middle:.2f}",
                f"{point.stall:.0%}",
                counted(point.blocks, "block"),
            )
        )
    step_ms = tuning.demand.step_ns / 1e6
    x = vega.measured("ms", "ms from batch to batch")
    bars = {
        "y": vega.named("setting", sort=None),
        "x": x,
        "color": vega.painted("kind", dict(zip(kinds, ("torch", "stoker", "quiet"), strict=True))),
        "tooltip": vega.tips(
            ("setting", "setting"), ("kind", "which is"), ("ms", "ms from batch to batch", ".1f"),
            ("stall", "of it waiting for data", ".0%"),
        ),
    }  # fmt: skip
    layers: list[vega.Spec] = [{"data": {"values": values}, "mark": "bar", "encoding": bars}]
    if step_ms:
        layers.append(
            {
                "data": {"values": [{"ms": step_ms, "what": "the step alone"}]},
                "mark": {"type": "rule", "color": colour("limit"), "strokeDash": [4, 3], "strokeWidth": 2},
                "encoding": {"x": x, "tooltip": vega.tips(("what", "what"), ("ms", "ms", ".1f"))},
            }
        )
    table = Table(
        "Settings that were run in turns",
        ("setting", "which is", "a batch every", "to now", "waiting", "measured in"),
        tuple(rows),
        numeric=frozenset({2, 3, 4}),
    )
    best = rows[0]
    title = "Time from batch to batch"
    if step_ms:
        title += "; dashed: the step alone, with data that costs nothing"
    return Chart(
        "demo-tuner-chart",
        title,
        f"The fastest was {best[0]}, with a batch every {best[2]}.",
        {"layer": layers},
        table,
    )


def _measured(tuning: Tuning) -> list[Point]:
    return [each for each in tuning.points if each.blocks and not each.failure]


def _read(result: dict[str, Any]) -> Tuning:
    from stoker._tools.tune.forms.data import from_json

    return from_json(result["tuning"])
