"""Probes that were ended from outside, or ended themselves: what the dataset did to them."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._tools.doctor.facts.samples import ProbeFailure as ProbeFailure


@dataclass(frozen=True, slots=True)
class ProbeFailures:
    """By the name of the probe, in the order in which they happened. Empty when all probes came back."""

    all: tuple[tuple[str, ProbeFailure], ...] = ()
