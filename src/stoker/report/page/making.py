"""From material to a report: the sections, in their order. Pure."""

from __future__ import annotations

from stoker.report.page.material import Material
from stoker.report.page.section import Report
from stoker.report.page.sections import breakdown, verdict

SECTIONS = (verdict, breakdown)
"""In the order of the page. A section that has nothing to say returns None and is left out."""


def report(material: Material) -> Report:
    """All of it. Raises nothing for records that are whole."""
    made = [each.section(material) for each in SECTIONS]
    return Report(
        title="stoker report",
        headline=material.runs[0].verdict.headline if material.runs else "",
        severity="none",
        sections=tuple(each for each in made if each is not None),
        raw={run.label: run.record.as_dict() for run in material.runs},
    )
