"""Shows where the time of devices, or of the training loop, went, by traces of torch.profiler."""

from __future__ import annotations

from stoker._tools.render.section import Chart, Part, Prose, Section, Table
from stoker._tools.render.theme import colour
from stoker._tools.report.page.material import Material
from stoker._tools.report.page.terms import percent, took
from stoker._tools.report.page.vega import measured, named, tips


def section(material: Material) -> Section | None:
    """The parts of the wall as bars, and what was measured beside."""
    verdict = material.traces
    if verdict is None:
        return None
    parts: list[Part] = []
    shares = sorted((each for each in verdict.shares if each.words), key=lambda each: -each.ns)
    if shares:
        values = [
            {
                "part": each.words,
                "share": round(each.share, 5),
                "s": round(each.ns / 1e9, 6),
                "kind": each.part,
            }
            for each in shares
        ]
        spec = {
            "data": {"values": values},
            "height": {"step": 28},
            "mark": "bar",
            "encoding": {
                "y": named("part", sort=[each.words for each in shares], axis={"labelLimit": 240}),
                "x": measured("share", "share of the wall time", axis={"format": "%"}),
                "color": {"condition": {"test": "datum.kind === 'data'", "value": colour("wait")}, "value": colour("series-1")},
                "tooltip": tips(("part", "part"), ("share", "share", ".1%"), ("s", "seconds", ",.3f")),
            },
        }  # fmt: skip
        rows = tuple((each.words, took(each.ns), percent(each.share)) for each in shares)
        table = Table("Where the wall time went", ("part", "time", "share"), rows, numeric=frozenset({1, 2}))
        who = "a device" if verdict.on_device else "the training loop"
        summary = f"Of the wall time of {who}, most was {shares[0].words}: {percent(shares[0].share)}."
        parts.append(Chart("traces-chart", "Where the wall time went", summary, spec, table))
    parts += map(Prose, verdict.evidence)
    return Section("traces", "What the traces show", tuple(parts)) if parts else None
