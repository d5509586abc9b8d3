"""``stoker.doctor``: gathers facts, runs the checks, and returns what they found."""

from __future__ import annotations

from collections.abc import Iterable

from stoker._doctor.catalogue import selected
from stoker._doctor.diagnosis import Diagnosis, diagnose
from stoker._doctor.facts import machine


def doctor(target: object = None, *, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> Diagnosis:
    """Examine a dataset or a loader, or without one this machine. Probes run in child processes with limits."""
    return diagnose(selected(select, ignore), {"machine": machine.gather()})
