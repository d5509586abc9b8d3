"""Where the time of a step goes: training, and waiting for data by cause."""

from __future__ import annotations

from stoker.report.page.material import Material, Run
from stoker.report.page.section import Chart, Section, Table


def section(material: Material) -> Section | None:
    """A bar for each run."""
    rows = [row for run in material.runs for row in _rows(run)]
    if not rows:
        return None
    table = Table(
        "Time of a step, in milliseconds",
        ("run", "part", "ms"),
        tuple((label, part, f"{ms:.2f}") for label, part, ms in rows),
        numeric=frozenset({2}),
    )
    spec = {
        "data": {"values": [{"run": label, "part": part, "ms": ms} for label, part, ms in rows]},
        "mark": "bar",
        "encoding": {
            "y": {"field": "run", "type": "nominal", "title": None},
            "x": {"field": "ms", "type": "quantitative", "title": "ms per step"},
            "color": {"field": "part", "type": "nominal", "title": None},
        },
    }
    chart = Chart(
        "breakdown-chart", "Time of a step", "Training, and waiting for data by cause.", spec, table
    )
    return Section("breakdown", "Where a step's time goes", (chart,))


def _rows(run: Run) -> list[tuple[str, str, float]]:
    if not run.verdict.loaders or not run.verdict.loaders[0].steps:
        return []
    loader = run.verdict.loaders[0]
    return [
        (run.label, "training", loader.causes.step_ns / loader.steps / 1e6),
        (run.label, "waiting for data", loader.causes.wait_ns / loader.steps / 1e6),
    ]
