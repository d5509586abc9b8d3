"""What a report is about: runs with their verdicts, and what the tuner and the doctor wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker._metrics.record import RunRecord
from stoker.report.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Run:
    """A record and what it shows. ``label`` tells it from the others of one report: a file's name."""

    label: str
    record: RunRecord
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Material:
    """All that was given, in its order. Two runs or more are shown side by side."""

    runs: tuple[Run, ...]
    tunings: tuple[dict[str, Any], ...] = ()
    """What ``stoker tune --json`` wrote."""
    diagnoses: tuple[dict[str, Any], ...] = ()
    """What ``stoker doctor --json`` wrote."""
