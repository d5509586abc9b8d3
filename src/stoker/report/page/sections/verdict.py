"""The answer, first of all: what the run waits for, why, and what to do about it."""

from __future__ import annotations

from stoker.report.page.material import Material
from stoker.report.page.section import Part, Prose, Section


def section(material: Material) -> Section | None:
    """For each run its sentence and its reasons."""
    parts: list[Part] = []
    for run in material.runs:
        for loader in run.verdict.loaders[:1]:
            parts += [Prose(line) for line in (loader.sentence, *loader.why)]
    return Section("verdict", "Verdict", tuple(parts)) if parts else None
