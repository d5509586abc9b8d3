"""The material of a report: runs with verdicts, the results of tuner and doctor, and profiler traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker._record.schema import RunRecord
from stoker._tools.report.verdict.verdict import Verdict

if TYPE_CHECKING:  # it needs numpy
    from stoker._tools.report.profiler.verdict import TraceVerdict


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A record and what it shows. ``label`` tells it from the others of one report: a file's name."""

    label: str
    record: RunRecord
    verdict: Verdict
    notes: tuple[str, ...] = ()
    """What one has to know of its files: that one was cut off, which ones are this run."""


@dataclass(frozen=True, slots=True)
class Material:
    """All that was given, in its order. Two runs or more are shown side by side."""

    runs: tuple[ReportedRun, ...]
    tunings: tuple[dict[str, Any], ...] = ()
    """What ``stoker tune --json`` wrote."""
    diagnoses: tuple[dict[str, Any], ...] = ()
    """What ``stoker doctor --json`` wrote."""
    traces: TraceVerdict | None = None
    """What the traces of torch.profiler show: then there are no runs."""
